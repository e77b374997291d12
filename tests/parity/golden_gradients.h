#pragma once

/// Sums of a gradient's numbers with random signs: what golden models keep of a gradient, next to its norm.
///
/// For any difference of two gradients the mean square of the differences of such sums is an unbiased
/// estimate of its squared L2 norm, with a standard deviation of sqrt(2 / 16) of it: a difference shows
/// wherever it is. tests/fixtures/models/compact.py writes them.

#include <ATen/ATen.h>

#include <array>
#include <cstdint>

#include "core/splitmix64.h"
#include "core/tensor.h"

namespace slime::testing {

constexpr int kSignSums = 16;

/// float64 [kSignSums]. The sign of number i in sum k is bit k of the output i of SplitMix64.
inline Tensor sign_sums(const Tensor& gradient) {
  const Tensor flat = gradient.detach().to(at::kDouble).contiguous().flatten();
  const double* numbers = flat.const_data_ptr<double>();
  std::array<double, kSignSums> sums{};
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const uint64_t bits = splitmix64(static_cast<uint64_t>(i) * kGoldenRatio64);
    for (int k = 0; k < kSignSums; ++k) sums[k] += (bits >> k & 1) != 0 ? -numbers[i] : numbers[i];
  }
  return at::tensor(at::ArrayRef<double>(sums.data(), sums.size()), at::kDouble);
}

/// The L2 norm of the difference of a gradient and the golden one, estimated from the latter's sums.
inline double distance(const Tensor& gradient, const Tensor& golden_sums) {
  return (sign_sums(gradient) - golden_sums.to(at::kDouble)).square().mean().sqrt().item<double>();
}

}  // namespace slime::testing
