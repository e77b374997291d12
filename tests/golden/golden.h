#pragma once

/// Access to the golden cases of tests/golden as tensors, and their tests in both precisions on
/// both devices.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/golden_test.h"
#include "core/json.h"
#include "core/tensor.h"

namespace slime::golden {

const json::object& part(const json::object& object, const char* key);
bool has(const json::object& object, const char* key);  // present and not null
double number(const json::object& object, const char* key);
int64_t integer(const json::object& object, const char* key);
bool flag(const json::object& object, const char* key);
std::string word(const json::object& object, const char* key);

/// Numbers of a (ragged) list, end to end.
std::vector<double> doubles(const json::value& list);
std::vector<int64_t> integers(const json::value& list);
/// Lengths of the inner lists.
std::vector<int64_t> lengths(const json::value& list);
std::vector<std::vector<int64_t>> partitions(const json::value& list);

/// Where the tensors of the case that runs are: CPU or GPU.
at::Device device();

/// The same as a tensor there; null gives an undefined one.
Tensor column(const json::object& object, const char* key, at::ScalarType dtype);
Tensor mask(const json::object& object, const char* key);

/// README: 1e-9 in float64, 1e-5 in float32, relative to max(1, |expected|).
void expect_close(const Tensor& actual, const json::value& expected, const char* what);
void expect_close(double actual, const json::value& expected, const char* what,
                  at::ScalarType dtype);

using CaseBodyInPrecision = void (*)(const json::object& c, at::ScalarType dtype);

/// Each case four times: NAME_float64 and NAME_float32, and both with _cuda, on a GPU, skipped
/// where there is none.
bool register_cases_in_both_precisions(const std::string& suite, const std::string& file,
                                       CaseBodyInPrecision body, const char* source, int line);

}  // namespace slime::golden

/// As GOLDEN_TEST; the body also sees `dtype`, float64 or float32.
#define GOLDEN_TEST_IN_BOTH_PRECISIONS(suite, file)                                             \
  static void suite##_golden(const ::slime::json::object& c, at::ScalarType dtype);             \
  [[maybe_unused]] static const bool suite##_registered =                                       \
      ::slime::golden::register_cases_in_both_precisions("Golden" #suite, file, suite##_golden, \
                                                         __FILE__, __LINE__);                   \
  static void suite##_golden([[maybe_unused]] const ::slime::json::object& c,                   \
                             [[maybe_unused]] at::ScalarType dtype)
