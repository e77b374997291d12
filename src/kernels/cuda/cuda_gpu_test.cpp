/// Recording on the GPU.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/cuda/gpu_test_tensors.h"

namespace slime::kernels {
namespace {

TEST(GpuRecord, ReplaysOnTheSameMemory) {
  SLIME_NEEDS_GPU();
  Gpu& gpu = open_gpu();
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
  const Tensor weight = at::randn({64, 32}, at::TensorOptions(at::kBFloat16).device(at::kCUDA));
  Tensor x = at::zeros({2, 32}, weight.options()), y = at::zeros({2, 64}, weight.options());
  const auto body = [&] { y.copy_(gpu.device().linear(x, weight, {})); };
  body();
  const auto graph = gpu.record(body, nullptr);
  for (int i = 0; i < 3; ++i) {
    x.normal_();
    graph->replay();
    EXPECT_LT(relative_error(y, at::mm(x.to(at::kDouble), weight.to(at::kDouble).t())), 4e-3);
  }
}

}  // namespace
}  // namespace slime::kernels
