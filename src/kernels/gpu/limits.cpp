#include "kernels/gpu/limits.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "core/clock.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels {
namespace {

constexpr int kRuns = 5;

/// Seconds of the fastest of kRuns runs of `repeats` launches each.
template <typename Work>
double best_seconds(int repeats, const Work& work) {
  const SystemClock clock;
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  double best = 1e300;
  for (int run = 0; run <= kRuns; ++run) {
    device.synchronizeDevice(0);  // sync: this is a measurement
    const auto start = clock.now();
    for (int i = 0; i < repeats; ++i) work();
    device.synchronizeDevice(0);
    if (run > 0) best = std::min(best, seconds_between(start, clock.now()) / repeats);
  }
  return best;
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
        2.0 * static_cast<double>(from.nbytes()) / best_seconds(4, [&] { to.copy_(from); });
  }
  constexpr int64_t kSize = 8192;
  const Tensor a = at::randn({kSize, kSize}, options), b = at::randn({kSize, kSize}, options);
  Tensor c = at::empty_like(a);
  limits.flops_per_second =
      2.0 * kSize * kSize * kSize / best_seconds(8, [&] { at::mm_out(c, a, b); });
  return limits;
}

}  // namespace slime::kernels
