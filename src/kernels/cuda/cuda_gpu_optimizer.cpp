#include <ATen/ATen.h>

#include <cmath>

#include "core/error.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/training/adamw.h"

namespace slime::kernels::cuda {

void CudaGpu::adamw_(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
                     const Tensor& second_moment_N, const Tensor& grad_N,
                     std::span<const AdamRange> ranges, const AdamStep& step) const {
  AdamWCall call;
  call.number = number_of(weights_N);
  call.beta1 = static_cast<float>(step.beta1);
  call.beta2 = static_cast<float>(step.beta2);
  call.eps = static_cast<float>(step.eps);
  call.grad_scale = static_cast<float>(step.grad_scale);
  const auto t = static_cast<double>(step.step);
  call.step_size = static_cast<float>(step.lr / (1 - std::pow(step.beta1, t)));
  call.inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, t)));
  for (const AdamRange& range : ranges) {
    check(range.begin % 4 == 0, "ranges of the flat buffer start at whole packs");
    call.weights_N =
        static_cast<char*>(weights_N.data_ptr()) + range.begin * weights_N.element_size();
    call.master_N = master_N.data_ptr<float>() + range.begin;
    call.first_moment_N = first_moment_N.data_ptr<float>() + range.begin;
    call.second_moment_N = second_moment_N.data_ptr<float>() + range.begin;
    call.grad_N = grad_N.const_data_ptr<float>() + range.begin;
    call.count = range.end - range.begin;
    call.decay = range.decays ? static_cast<float>(1 - step.lr * step.weight_decay) : 1.0F;
    cuda::adamw(call, stream_of(weights_N));
  }
}

double CudaGpu::sum_of_squares(const Tensor& x_N) const {
  check(x_N.scalar_type() == at::kFloat, "sum_of_squares on a GPU reads float32");
  const Tensor sums = at::empty({kSquareSums}, x_N.options().dtype(at::kDouble));
  sums_of_squares(x_N.const_data_ptr<float>(), x_N.numel(), sums.data_ptr<double>(),
                  stream_of(x_N));
  const Tensor host = sums.cpu();  // waits for the GPU: once an optimizer step
  double total = 0;
  for (int64_t i = 0; i < kSquareSums; ++i) total += host.const_data_ptr<double>()[i];
  return total;
}

}  // namespace slime::kernels::cuda
