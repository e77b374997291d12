#pragma once

/// Helpers for tests of GPU kernels: tensors on both sides, the CPU reference, and the distance of
/// results.

#include <ATen/ATen.h>

#include <array>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/gpu/for_tests.h"

namespace slime::kernels {

/// The precisions of the kernels.
inline constexpr auto kGpuTypes = std::to_array({at::kFloat, at::kBFloat16, at::kHalf});

/// Undefined tensors stay what they are.
inline Tensor to_gpu(const Tensor& x) { return x.defined() ? x.to(at::kCUDA) : x; }

template <typename T>
Tensor to_gpu(const std::vector<T>& numbers, at::ScalarType type) {
  return at::tensor(numbers, at::TensorOptions(type)).to(at::kCUDA);
}

/// As the twin computes; undefined tensors stay what they are.
inline Tensor wide(const Tensor& x) { return x.defined() ? x.to(at::kDouble) : x; }

/// Normal numbers on the CPU, sampled in float32 whatever the type.
inline Tensor numbers(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::TensorOptions(at::kFloat)).to(type);
}

inline const cpu::ReferenceDevice& twin() {
  static const cpu::ReferenceDevice device;
  return device;
}

/// |a - exact| / |exact| in double, wherever they are; NaN fails every comparison.
inline double relative_error(const Tensor& a, const Tensor& exact) {
  const Tensor wide_exact = exact.to(at::kCPU).to(at::kDouble);
  return ((a.to(at::kCPU).to(at::kDouble) - wide_exact).norm() / wide_exact.norm()).item<double>();
}

}  // namespace slime::kernels
