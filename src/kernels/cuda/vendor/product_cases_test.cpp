// Cases of products/skinny_linear and products/product_probe_rows (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include "kernels/cuda/products/product_probe.h"
#include "kernels/cuda/products/skinny_linear.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"

namespace slime::kernels::cuda {
namespace {

struct SkinnyShape {
  at::ScalarType type = at::kBFloat16;
  bool float_result = false, has_bias = false;
  int64_t rows = 0, inputs = 0, outputs = 0;
};

double error_of_skinny(BlockExecutor& executor, const SkinnyShape& shape) {
  const auto& [type, float_result, has_bias, rows, inputs, outputs] = shape;
  const Tensor x = random({rows, inputs}, type), weight = random({outputs, inputs}, type);
  const Tensor bias = random({outputs}, type) * 10;
  const Tensor y = unwritten({rows, outputs}, float_result ? at::kFloat : type);
  LinearCall call;
  call.number = to_number(type);
  call.float_result = float_result;
  call.x_TI = x.data_ptr(), call.weight_OI = weight.data_ptr();
  call.bias_O = has_bias ? bias.data_ptr() : nullptr;
  call.y_TO = y.data_ptr();
  call.rows = rows, call.inputs = inputs, call.outputs = outputs;
  skinny_linear(call, &executor);
  Tensor exact = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
  if (has_bias) exact += bias.to(at::kDouble);
  return error_of(y, exact, rounding_bound(y.scalar_type()));
}

/// The function of place and seed, written once more.
float probe_number(uint32_t place, uint32_t seed) {
  const auto mixed = [](uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return x ^ x >> 16;
  };
  const uint32_t bits = mixed(mixed(place ^ seed));
  return std::ldexp(static_cast<float>(static_cast<int>(bits & 255U) - 128),
                    -7 - static_cast<int>(bits >> 8 & 7U));
}

double error_of_probe(BlockExecutor& executor, at::ScalarType type, bool is_negated) {
  const int64_t rows = 7, inputs = 1290;  // more numbers than all blocks have threads
  const auto seed = static_cast<uint32_t>(at::randint(1 << 30, {1}).item<int64_t>());
  const Tensor made = unwritten({rows, inputs}, type), exact = at::empty({rows, inputs});
  write_mirrored_rows(to_number(type), made.data_ptr(), rows, inputs, seed, is_negated, &executor);
  for (int64_t row = 0; row < rows; ++row) {
    float* to = exact[row].data_ptr<float>();
    for (int64_t i = 0; i < inputs / 2; ++i) {
      to[i] = probe_number(static_cast<uint32_t>(row * inputs + i), seed);
      to[inputs - 1 - i] = is_negated ? -to[i] : to[i];
    }
  }
  // Every number is exact in every precision; a zero has either sign.
  return error_of(made, exact, 1e-30);
}

}  // namespace

std::vector<KernelCase> product_cases() {
  std::vector<KernelCase> cases;
  const auto skinny = [&](const char* what, const SkinnyShape& shape) {
    cases.push_back({"products/skinny_linear",
                     what,
                     [shape](BlockExecutor& on) { return error_of_skinny(on, shape); },
                     {barrier_mistake(), lane_mistake(9), absent_thread(4)}});
  };
  skinny("SkinnyProduct", {.rows = 3, .inputs = 416, .outputs = 80});
  skinny("SkinnyProductOfManyRows", {.type = at::kHalf,
                                     .float_result = true,
                                     .has_bias = true,
                                     .rows = 11,
                                     .inputs = 256,
                                     .outputs = 32});
  for (const bool is_negated : {false, true})
    cases.push_back({"products/product_probe_rows",
                     is_negated ? "ProbeOfHalves" : "ProbeOfBFloats",
                     [is_negated](BlockExecutor& on) {
                       return error_of_probe(on, is_negated ? at::kHalf : at::kBFloat16,
                                             is_negated);
                     },
                     {absent_thread(40)}});
  return cases;
}

}  // namespace slime::kernels::cuda
