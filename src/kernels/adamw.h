#pragma once

/// AdamW and the gradient norm over flat buffers: memory-bound passes, one each. Dimension: N
/// elements of the buffers.

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace slime::kernels {

/// A run of the flat buffer whose elements are treated alike. Runs do not overlap; elements in no
/// run are left alone.
struct AdamRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool decays = false;
};

struct AdamStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;        // added after the bias-corrected square root
  double weight_decay = 0;  // decoupled, applied first: w *= 1 - lr * weight_decay
  /// Multiplies each gradient: clipping and averaging without a pass of their own.
  double grad_scale = 1;
  int64_t step = 1;  // 1 for the first update
};

/// weights_N: bfloat16, float16, float32 or float64; the others float32, or all float64. When
/// master_N is weights_N itself there is one set of weights. Elementwise, so the result does not
/// depend on the number of threads.
void adamw_(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
            const Tensor& second_moment_N, const Tensor& grad_N, std::span<const AdamRange> ranges,
            const AdamStep& step);

/// Sum of squares in double precision, the same for any number of threads. Not finite when an
/// element is not.
double sum_of_squares(const Tensor& x_N);

}  // namespace slime::kernels
