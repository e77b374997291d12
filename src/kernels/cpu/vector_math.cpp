#include "kernels/cpu/vector_math.h"

#include <ATen/ATen.h>

#include <array>

namespace slime::kernels::cpu {

void call_vector_math_once() {
  using Function = at::Tensor (*)(const at::Tensor&);
  // Those of ATen/cpu/vml.h that are MKL's.
  constexpr std::array<Function, 16> kFunctions{
      at::acos, at::asin, at::atan,  at::cos, at::erf,  at::erfc, at::erfinv, at::exp,
      at::log,  at::log2, at::log10, at::sin, at::sqrt, at::tan,  at::tanh,   at::trunc};
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor half = at::full({1}, 0.5, at::TensorOptions(type));
    for (const Function function : kFunctions) function(half);
  }
}

}  // namespace slime::kernels::cpu
