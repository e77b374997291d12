#pragma once

/// Access to the golden cases of tests/golden: a file is an array of {name, params, inputs,
/// expected} (README there).

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/tensor.h"

namespace slime::golden {

/// Calls `body` with each case of tests/golden/FILE, under a SCOPED_TRACE with its name. Fails when
/// there are none.
void for_each_case(const std::string& file, const std::function<void(const json::object&)>& body);

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

/// The same as a tensor; null gives an undefined one.
Tensor column(const json::object& object, const char* key, at::ScalarType dtype);
Tensor mask(const json::object& object, const char* key);

/// README: 1e-9 in float64, 1e-5 in float32, relative to max(1, |expected|).
void expect_close(const Tensor& actual, const json::value& expected, const char* what,
                  double slack = 1);
void expect_close(double actual, const json::value& expected, const char* what,
                  at::ScalarType dtype);

/// Both precisions the algorithms run in.
inline constexpr at::ScalarType kPrecisions[] = {at::kDouble, at::kFloat};

}  // namespace slime::golden
