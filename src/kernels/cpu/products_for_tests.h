#pragma once

/// Comparison of products with those in double precision.

#include <ATen/ATen.h>

#include "core/tensor.h"

namespace slime::kernels::cpu {

/// A sum of k products of numbers near one is as large as sqrt(k) and is rounded k times: errors of
/// sqrt(k) * sqrt(k) * 2^-24 are usual, and some in 10^5 elements are five times that.
inline double tolerance(int64_t k) { return 5e-7 * static_cast<double>(k) + 1e-6; }

inline double max_difference(const Tensor& a, const Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace slime::kernels::cpu
