/// Recording on the GPU.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>
#include <thread>
#include <vector>

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
  const auto graph = gpu.record(body, nullptr, GraphLaunch::kWhole);
  for (int i = 0; i < 3; ++i) {
    x.normal_();
    graph->replay();
    EXPECT_LT(relative_error(y, at::mm(x.to(at::kDouble), weight.to(at::kDouble).t())), 4e-3);
  }
}

/// Kernels that start early (PDL) and those of ATen, each of which needs the one before.
TEST(GpuRecord, ReplaysInPiecesAreTheKernelsOneByOne) {
  SLIME_NEEDS_GPU();
  Gpu& gpu = open_gpu();
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
  const auto on_gpu = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  const Tensor weight = at::randn({256, 256}, on_gpu), ones = at::ones({256}, on_gpu);
  for (const int64_t links : {2, 8, 60}) {
    Tensor x = at::zeros({4, 256}, on_gpu), y = at::zeros({4, 256}, on_gpu);
    const auto body = [&] {
      Tensor z = x;
      for (int64_t i = 0; i < links; ++i)
        z = gpu.device().rms_norm(gpu.device().linear(z, weight, {}), ones, 1e-6).mul_(2);
      y.copy_(z);
    };
    body();
    const auto graph = gpu.record(body, nullptr, GraphLaunch::kPieces);
    EXPECT_EQ(graph->num_pieces() > 1, links > 2) << links;
    for (int round = 0; round < 20; ++round) {
      x.normal_();
      body();
      const Tensor wanted = y.clone();
      y.fill_(-1);
      graph->replay();
      if (round % 2 == 0) graph->replay();  // behind itself
      EXPECT_TRUE(at::equal(y, wanted)) << links << " links, round " << round;
    }
  }
}

/// Temporaries of both lie in the same memory.
TEST(GpuRecord, GraphsInPiecesShareMemoryWithWholeOnes) {
  SLIME_NEEDS_GPU();
  Gpu& gpu = open_gpu();
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
  const Tensor x = at::ones({1024}, at::TensorOptions(at::kFloat).device(at::kCUDA)),
               y = at::zeros_like(x);
  const auto body = [&] {
    Tensor z = x;
    for (int64_t i = 0; i < 100; ++i) z = z + 1;
    y.copy_(z);
  };
  body();
  const auto whole = gpu.record(body, nullptr, GraphLaunch::kWhole);
  const auto pieces = gpu.record(body, whole.get(), GraphLaunch::kPieces);
  const auto another = gpu.record(body, pieces.get(), GraphLaunch::kPieces);
  EXPECT_EQ(whole->num_pieces(), 1);
  EXPECT_EQ(pieces->num_pieces(), 3);  // 101 nodes: 16, 32 and 53
  for (const auto* graph : {&pieces, &whole, &another, &pieces}) {
    y.zero_();
    (*graph)->replay();
    EXPECT_EQ(y.min().item<float>(), 101);
    EXPECT_EQ(y.max().item<float>(), 101);
  }
}

TEST(OpenGpu, LeavesTheHostFewThreads) {
  SLIME_NEEDS_GPU();
  open_gpu();
  EXPECT_LE(at::get_num_threads(), kMostHostThreads);
}

TEST(GpuMemory, ASmallTensorDoesNotKeepALargeBlockFromGoingBack) {
  SLIME_NEEDS_GPU();
  constexpr int64_t kLarge = int64_t{3} << 30;
  Gpu& gpu = open_gpu();
  const auto bytes = at::TensorOptions(at::kByte).device(at::kCUDA);
  gpu.release_unused_memory();
  const int64_t free = gpu.memory_use().free;
  Tensor large = at::empty({kLarge}, bytes);
  large = Tensor();
  const Tensor small = at::zeros({int64_t{12} << 20}, bytes);  // where the large one was
  gpu.release_unused_memory();
  EXPECT_GT(gpu.memory_use().free, free - kLarge / 8);
  EXPECT_EQ(small.max().item<uint8_t>(), 0);
}

TEST(SharedGpuMemory, HasADescriptorAndIsGivenBack) {
  SLIME_NEEDS_GPU();
  Gpu& gpu = open_gpu();
  const GpuMemoryUse before = gpu.memory_use();
  {
    const auto memory = gpu.share_memory((int64_t{1024} << 20) + 1);
    EXPECT_EQ(memory->size_bytes(), int64_t{1026} << 20);
    EXPECT_EQ(gpu.memory_use().mapped, before.mapped + memory->size_bytes());
    EXPECT_GT(memory->descriptor(), 2);
    EXPECT_EQ(memory->device_index(), 0);
    const Tensor numbers = memory->view(64, {3, 1000}, at::kFloat);
    numbers.copy_(at::arange(3000, at::kFloat).view({3, 1000}));
    const Tensor same = memory->view(64 + 4 * 1000, {1000}, at::kFloat);
    EXPECT_TRUE(at::equal(same.cpu(), at::arange(1000, 2000, at::kFloat)));
    EXPECT_THROW(memory->view(int64_t{1026} << 20, {1}, at::kFloat), BugError);
  }
  EXPECT_EQ(gpu.memory_use().mapped, before.mapped);
  // Of the device: other processes may have taken some meanwhile.
  EXPECT_GE(gpu.memory_use().free, before.free - (int64_t{64} << 20));
}

TEST(GpuRecord, OthersComputeAndGiveMemoryBackMeanwhile) {
  SLIME_NEEDS_GPU();
  Gpu& gpu = open_gpu();
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
  Tensor x = at::ones({64}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  std::string failure;
  const auto graph = gpu.record(
      [&] {
        x.mul_(2);
        std::thread([&] {
          try {
            const auto memory = gpu.reserve_memory(int64_t{4} << 20);
            memory->view(0, {1024}, at::kFloat).fill_(3);
            memory->unmap();
            device.getStream(at::Device(at::kCUDA, 0)).synchronize();
          } catch (const std::exception& error) {
            failure = error.what();
          }
        }).join();
        x.add_(1);
      },
      nullptr, GraphLaunch::kWhole);
  EXPECT_EQ(failure, "");
  graph->replay();
  EXPECT_EQ(x.max().item<float>(), 3);
}

/// A trainer and two engines of one process compute on streams of their own.
TEST(CudaDevice, ProductsOfThreeStreamsAtOnceAreThoseOfOne) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  // Few outputs and many inputs: the library divides the sums and keeps parts of them aside.
  const Tensor x = to_gpu(numbers({320, 8192}, at::kBFloat16));
  const Tensor weight = to_gpu(numbers({256, 8192}, at::kBFloat16));
  const Tensor alone = gpu.linear(x, weight, {}).cpu();
  std::vector<Tensor> largest_differences(3);
  std::vector<std::thread> threads;
  for (Tensor& largest : largest_differences) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
      const Tensor expected = alone.to(at::kCUDA);
      largest = at::zeros({}, expected.options());
      for (int i = 0; i < 300; ++i)
        largest = at::maximum(largest, (gpu.linear(x, weight, {}) - expected).abs().max());
      largest = largest.cpu();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& largest : largest_differences) EXPECT_EQ(largest.item<float>(), 0);
}

}  // namespace
}  // namespace slime::kernels
