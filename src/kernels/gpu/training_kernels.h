#pragma once

/// GPU kernels of the optimizer step.
///
/// All work goes to the current stream of the tensors' device and is asynchronous: no call waits for the GPU
/// unless it says so. Tensors are on the GPU unless a line says "host".

#include <span>

#include "core/tensor.h"
#include "kernels/adamw.h"

namespace slime::kernels {

class TrainingKernels {
 public:
  virtual ~TrainingKernels() = default;

  /// As in kernels/adamw.h; float32 or 16-bit weights.
  virtual void adamw_(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
                      const Tensor& second_moment_N, const Tensor& grad_N,
                      std::span<const AdamRange> ranges, const AdamStep& step) const = 0;
  /// Waits for the GPU. float32.
  virtual double sum_of_squares(const Tensor& x_N) const = 0;
};

}  // namespace slime::kernels
