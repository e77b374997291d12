#include "kernels/gpu/self_tests.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

namespace slime::kernels {
namespace {

constexpr int64_t kRows = 8;
constexpr int64_t kWidth = 256;
constexpr double kMebibyte = 1 << 20;

/// Kernels of a decode step whose results go to `out`.
class KernelChain {
 public:
  KernelChain(const Device& device, at::Device place) : device_(device) {
    const at::TensorOptions type(place.is_cpu() ? at::kFloat : at::kBFloat16);
    const auto made = [&](at::IntArrayRef sizes) {
      return (at::randn(sizes) * 0.1).to(type.dtype()).to(place);
    };
    x_TH = made({kRows, kWidth});
    weight_H_ = made({kWidth});
    wide_OH_ = made({2 * kWidth, kWidth});
    head_VH_ = made({4 * kWidth, kWidth});
    out_TV = at::zeros({kRows, 4 * kWidth}, at::TensorOptions(at::kFloat).device(place));
  }

  void launch() const {
    const Tensor normed = device_.rms_norm(x_TH, weight_H_, 1e-6);
    const Tensor gated = device_.swiglu(device_.linear(normed, wide_OH_, {}));
    out_TV.copy_(device_.logits(gated, head_VH_));
  }

  Tensor x_TH;
  Tensor out_TV;

 private:
  const Device& device_;
  Tensor weight_H_, wide_OH_, head_VH_;
};

int64_t bytes_that_differ(const Tensor& a, const Tensor& b) {
  return a.view(at::kByte).ne(b.view(at::kByte)).count_nonzero().item<int64_t>();
}

}  // namespace

int64_t replay_differences(const Device& device, at::Device place, const Record& record,
                           int rounds) {
  const at::NoGradGuard no_grad;
  const KernelChain chain(device, place);
  chain.launch();  // libraries choose their algorithms
  const std::unique_ptr<GpuGraph> graph = record([&chain] { chain.launch(); });
  int64_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    chain.x_TH.copy_(at::randn({kRows, kWidth}));
    chain.launch();
    const Tensor eager_TV = chain.out_TV.clone();
    chain.out_TV.fill_(-1);
    graph->replay();
    wrong += bytes_that_differ(chain.out_TV, eager_TV);
  }
  return wrong;
}

ReturnedMemory returned_memory(GpuMemoryManager& memory, int64_t bytes, int rounds) {
  const auto free_bytes = [&memory] { return memory.memory_use().free; };
  ReturnedMemory found;
  {
    const std::unique_ptr<GpuMemory> pages = memory.reserve_memory(bytes);
    found.asked = pages->size_bytes();
    found.least_return = found.asked;
    pages->unmap();
    const int64_t free_at_first = free_bytes();
    for (int round = 0; round < rounds; ++round) {
      pages->map();
      const int64_t count = found.asked / static_cast<int64_t>(sizeof(int32_t));
      pages->view(0, {count}, at::kInt).fill_(round + 1);
      found.wrong_bytes +=
          4 * pages->view(0, {count}, at::kInt).ne(round + 1).count_nonzero().item<int64_t>();
      memory.release_unused_memory();
      const int64_t free_when_mapped = free_bytes();
      pages->unmap();
      found.least_return = std::min(found.least_return, free_bytes() - free_when_mapped);
    }
    found.lost = free_at_first - free_bytes();
  }
  return found;
}

std::string problem_of(const ReturnedMemory& found) {
  if (found.wrong_bytes > 0)
    return fmt::format("{} bytes of mapped memory were read otherwise than they were written",
                       found.wrong_bytes);
  if (found.is_right()) return {};
  return fmt::format(
      "of {:.0f} MiB that were unmapped {:.0f} came back to the driver in the worst round, and "
      "{:.0f} are missing at the end",
      static_cast<double>(found.asked) / kMebibyte,
      static_cast<double>(found.least_return) / kMebibyte,
      static_cast<double>(found.lost) / kMebibyte);
}

}  // namespace slime::kernels
