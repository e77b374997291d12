#include "golden.h"

#include <ATen/ATen.h>

#include "kernels/gpu/for_tests.h"

namespace slime::golden {
namespace {

void flatten(const json::value& value, std::vector<double>& out) {
  if (value.is_array()) {
    for (const auto& entry : value.as_array()) flatten(entry, out);
  } else if (value.is_string()) {
    out.push_back(std::stod(std::string(value.as_string())));  // "nan", "inf", "-inf"
  } else if (value.is_bool()) {
    out.push_back(value.as_bool() ? 1 : 0);
  } else {
    out.push_back(value.to_number<double>());
  }
}

at::Device place = at::kCPU;  // of the case that runs

double tolerance(at::ScalarType dtype) { return dtype == at::kDouble ? 1e-9 : 1e-5; }

void expect_all_close(const std::vector<double>& actual, const std::vector<double>& expected,
                      const char* what, double bound) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], bound * std::max(1.0, std::abs(expected[i])))
        << what << "[" << i << "]";
  }
}

}  // namespace

bool register_cases_in_both_precisions(const std::string& suite, const std::string& file,
                                       CaseBodyInPrecision body, const char* source, int line) {
  bool all_read = true;
  for (const auto& [dtype, suffix] :
       {std::pair{at::kDouble, "_float64"}, std::pair{at::kFloat, "_float32"}}) {
    const auto on_cpu = [body, dtype = dtype](const json::object& c) {
      place = at::kCPU;
      body(c, dtype);
    };
    const auto on_gpu = [body, dtype = dtype](const json::object& c) {
      SLIME_NEEDS_GPU();
      place = at::Device(at::kCUDA, 0);
      body(c, dtype);
    };
    all_read &= register_cases(suite, file, on_cpu, source, line, suffix);
    all_read &= register_cases(suite, file, on_gpu, source, line, suffix + std::string("_cuda"));
  }
  return all_read;
}

at::Device device() { return place; }

const json::object& part(const json::object& object, const char* key) {
  return object.at(key).as_object();
}

bool has(const json::object& object, const char* key) {
  const auto* value = object.if_contains(key);
  return value != nullptr && !value->is_null();
}

double number(const json::object& object, const char* key) {
  return object.at(key).to_number<double>();
}
int64_t integer(const json::object& object, const char* key) {
  return object.at(key).to_number<int64_t>();
}
bool flag(const json::object& object, const char* key) {
  return has(object, key) && object.at(key).as_bool();
}
std::string word(const json::object& object, const char* key) {
  return std::string(object.at(key).as_string());
}

std::vector<double> doubles(const json::value& list) {
  std::vector<double> out;
  flatten(list, out);
  return out;
}

std::vector<int64_t> integers(const json::value& list) {
  const std::vector<double> values = doubles(list);
  return {values.begin(), values.end()};
}

std::vector<int64_t> lengths(const json::value& list) {
  std::vector<int64_t> out;
  for (const auto& inner : list.as_array())
    out.push_back(static_cast<int64_t>(inner.as_array().size()));
  return out;
}

std::vector<std::vector<int64_t>> partitions(const json::value& list) {
  std::vector<std::vector<int64_t>> out;
  for (const auto& inner : list.as_array()) out.push_back(integers(inner));
  return out;
}

Tensor column(const json::object& object, const char* key, at::ScalarType dtype) {
  return has(object, key) ? at::tensor(doubles(object.at(key)), at::kDouble).to(place, dtype)
                          : Tensor();
}

Tensor mask(const json::object& object, const char* key) {
  return column(object, key, at::kDouble) != 0;
}

void expect_close(const Tensor& actual, const json::value& expected, const char* what) {
  const Tensor wide = actual.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* data = wide.const_data_ptr<double>();
  expect_all_close({data, data + wide.numel()}, doubles(expected), what,
                   tolerance(actual.scalar_type()));
}

void expect_close(double actual, const json::value& expected, const char* what,
                  at::ScalarType dtype) {
  expect_all_close({actual}, doubles(expected), what, tolerance(dtype));
}

}  // namespace slime::golden
