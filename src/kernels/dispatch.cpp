/// Which device's kernels a tensor gets; nothing else chooses.

#include "core/error.h"
#include "kernels/adamw.h"
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels {

const Device& kernels_for(const Tensor& tensor) {
  return tensor.is_cuda() ? opened_gpu().device() : cpu::device();
}

void adamw_(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
            const Tensor& second_moment_N, const Tensor& grad_N, std::span<const AdamRange> ranges,
            const AdamStep& step) {
  if (weights_N.is_cuda()) {
    opened_gpu().adamw_(weights_N, master_N, first_moment_N, second_moment_N, grad_N, ranges, step);
  } else {
    cpu::adamw_(weights_N, master_N, first_moment_N, second_moment_N, grad_N, ranges, step);
  }
}

double sum_of_squares(const Tensor& x_N) {
  check(x_N.is_contiguous(), "sum_of_squares reads a contiguous buffer");
  return x_N.is_cuda() ? opened_gpu().sum_of_squares(x_N) : cpu::sum_of_squares(x_N);
}

}  // namespace slime::kernels
