#include "kernels/gpu/limits.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/best_seconds.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels {
namespace {

constexpr int kRuns = 5;

/// Seconds of a launch, in the fastest of kRuns runs of `launches` each after one that does not
/// count.
template <typename Work>
double launch_seconds(int launches, const Work& work) {
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const auto run = [&] {
    for (int i = 0; i < launches; ++i) work();
    device.synchronizeDevice(0);  // sync: the end of what is measured
  };
  run();
  return best_seconds(kRuns, run) / launches;
}

}  // namespace

GpuLimits measure_gpu_limits() {
  open_gpu();
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  GpuLimits limits;
  {
    constexpr int64_t kNumbers = int64_t{2} << 30;
    const Tensor from = at::ones({kNumbers}, options);
    Tensor to = at::empty_like(from);
    limits.copy_bytes_per_second =
        2.0 * static_cast<double>(from.nbytes()) / launch_seconds(4, [&] { to.copy_(from); });
  }
  constexpr int64_t kSize = 8192;
  const Tensor a = at::randn({kSize, kSize}, options), b = at::randn({kSize, kSize}, options);
  Tensor c = at::empty_like(a);
  limits.flops_per_second =
      2.0 * kSize * kSize * kSize / launch_seconds(8, [&] { at::mm_out(c, a, b); });
  return limits;
}

}  // namespace slime::kernels
