#pragma once

/// Sums of a gradient's numbers with random signs: what golden models keep of a gradient, next to its norm.
///
/// For any difference of two gradients the mean square of the differences of such sums is an unbiased
/// estimate of its squared L2 norm, with a standard deviation of sqrt(2 / 16) of it: a difference shows
/// wherever it is. tests/fixtures/models/compact.py writes them.

#include <ATen/ATen.h>

#include <array>
#include <cstdint>

#include "core/tensor.h"

namespace slime::testing {

constexpr int kSignSums = 16;

/// float64 [kSignSums]. The sign of number i in sum k is bit k of SplitMix64 of i + 1.
inline Tensor sign_sums(const Tensor& gradient) {
  const Tensor flat = gradient.detach().to(at::kDouble).contiguous().flatten();
  const double* numbers = flat.const_data_ptr<double>();
  std::array<double, kSignSums> sums{};
  for (int64_t i = 0; i < flat.numel(); ++i) {
    uint64_t x = static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    for (int k = 0; k < kSignSums; ++k) sums[k] += (x >> k & 1) != 0 ? -numbers[i] : numbers[i];
  }
  return at::tensor(at::ArrayRef<double>(sums.data(), sums.size()), at::kDouble);
}

/// The L2 norm of the difference of a gradient and the golden one, estimated from the latter's sums.
inline double distance(const Tensor& gradient, const Tensor& golden_sums) {
  return (sign_sums(gradient) - golden_sums.to(at::kDouble)).square().mean().sqrt().item<double>();
}

}  // namespace slime::testing
