// Collectives over memory that several GPUs write to directly: the exact sums, the same bits on each.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "gpu_rank_processes.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/peer_collectives.h"

namespace slime::parity {
namespace {

using comm::Mesh;
using ::testing::HasSubstr;

const auto kOnGpu = at::TensorOptions().device(at::kCUDA);
constexpr int64_t kAllWords = int64_t{1} << 20;

std::unique_ptr<kernels::PeerCollectives> peers_of(const Mesh& mesh, int64_t deadline_ms = 60'000) {
  return kernels::make_peer_collectives({.rank = mesh.rank(),
                                         .size = mesh.world().size(),
                                         .deadline = std::chrono::milliseconds(deadline_ms),
                                         .all_gather = [&](const std::string& bytes) {
                                           return mesh.world().all_gather(bytes, "meeting");
                                         }});
}

/// Made up on the host, so every rank knows those of all.
Tensor made_up(int rank, at::IntArrayRef shape, at::ScalarType type) {
  at::manual_seed(100 + rank);
  return at::randn(shape).to(type);
}

/// Float32 sums in the order of the ranks, rounded once.
Tensor exact_sum(at::IntArrayRef shape, at::ScalarType type, int size) {
  Tensor sum = at::zeros(shape);
  for (int rank = 0; rank < size; ++rank) sum += made_up(rank, shape, type).to(at::kFloat);
  return sum.to(type);
}

/// Bytes of a tensor, the same on all ranks.
void expect_same_everywhere(const Mesh& mesh, const Tensor& x) {
  const Tensor host = x.cpu().contiguous();
  const auto all = mesh.world().all_gather(
      std::string(static_cast<const char*>(host.data_ptr()), host.nbytes()), "comparing");
  for (const std::string& other : all) EXPECT_EQ(other, all[0]);
}

TEST(GpuPeers, ASumIsThatOfTheRanksInTheirOrderWhateverItsSizeAndTheWayItTakes) {
  SLIME_NEEDS_GPUS(2);
  on_gpus({.tp = 2}, [](const Mesh& mesh) {
    const auto peers = peers_of(mesh);
    for (const int64_t limit : {kAllWords, int64_t{0}}) {
      peers->set_flagged_words_limit(limit);
      for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat}) {
        for (const int64_t n : {8, 1016, 1024, 1032, 4096, 5120, 40'968, 262'144, 1 << 20}) {
          SCOPED_TRACE(::testing::Message() << type << " " << n << " limit " << limit);
          const Tensor x = made_up(mesh.rank(), {n}, type).to(at::kCUDA);
          ASSERT_TRUE(peers->takes(x));
          peers->sum_(x);
          EXPECT_TRUE(at::equal(x.cpu(), exact_sum({n}, type, mesh.world().size())));
        }
      }
    }
    EXPECT_EQ(peers->problem(), "");
    EXPECT_FALSE(peers->takes(at::zeros({3}, kOnGpu)));        // no whole 16 bytes
    EXPECT_FALSE(peers->takes(at::zeros({8 << 20}, kOnGpu)));  // too many
    EXPECT_FALSE(peers->takes(at::zeros({64}, kOnGpu.dtype(at::kLong))));
  });
}

TEST(GpuPeers, ARecordedSumIsRightAThousandTimes) {
  SLIME_NEEDS_GPUS(2);
  on_gpus({.tp = 2}, [](const Mesh& mesh) {
    const auto peers = peers_of(mesh);
    const c10::impl::VirtualGuardImpl device(at::kCUDA);
    const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
    // Whole numbers up to 180, so bfloat16, which has them up to 256, rounds none; each sum reads the
    // one before.
    constexpr int64_t kModulus = 61;
    const std::vector<int64_t> sizes{8, 4096, 70'000, 1 << 19};
    std::vector<Tensor> own, all;
    const auto begin_of = [](int64_t n, int rank) {
      return (at::arange(n, at::kLong) * (rank + 3) + rank).remainder(kModulus);
    };
    for (const int64_t n : sizes) {
      own.push_back(begin_of(n, mesh.rank()).to(at::kBFloat16).to(at::kCUDA));
      all.push_back(at::zeros({n}, kOnGpu.dtype(at::kBFloat16)));
    }
    const auto body = [&] {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        peers->set_flagged_words_limit(i % 2 == 0 ? 0 : kAllWords / 4);
        all[i].add_(own[i]).remainder_(kModulus);
        peers->sum_(all[i]);
      }
    };
    body();
    const auto graph = kernels::opened_gpu().record(body, nullptr, kernels::GraphLaunch::kWhole);
    constexpr int kReplays = 1000;
    for (int i = 0; i < kReplays; ++i) graph->replay();
    device.synchronizeDevice(0);
    EXPECT_EQ(peers->problem(), "");
    // Numbers that lie kModulus apart are the same.
    const Tensor a = begin_of(kModulus, 0), b = begin_of(kModulus, 1);
    Tensor period = at::zeros({kModulus}, at::kLong);
    for (int step = 0; step <= kReplays; ++step)
      period = (period + a).remainder(kModulus) + (period + b).remainder(kModulus);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Tensor x = period.index_select(0, at::arange(sizes[i], at::kLong).remainder(kModulus));
      EXPECT_TRUE(at::equal(all[i].cpu().to(at::kLong), x)) << sizes[i];
      expect_same_everywhere(mesh, all[i]);
    }
  });
}

TEST(GpuPeers, SumAdditionAndNormAreThoseOfSingleOperations) {
  SLIME_NEEDS_GPUS(2);
  on_gpus({.tp = 2}, [](const Mesh& mesh) {
    const auto peers = peers_of(mesh);
    const auto type = at::kBFloat16;
    const int size = mesh.world().size();
    for (const int64_t limit : {kAllWords / 4, int64_t{0}}) {
      peers->set_flagged_words_limit(limit);
      for (const int64_t hidden : {64, 4096, 5120, 8200}) {
        for (const int64_t rows : {1, 2, 3, 64, 129, 256}) {
          for (const int64_t splits : {0, 1, 3}) {
            SCOPED_TRACE(::testing::Message()
                         << rows << " x " << hidden << " of " << splits << " limit " << limit);
            // 0: one result in bfloat16. A bias is rank 1's.
            const auto part_of = [&](int rank) {
              return splits == 0 ? made_up(rank, {rows, hidden}, type)
                                 : made_up(rank, {splits, rows, hidden}, at::kFloat);
            };
            const Tensor bias = made_up(7, {hidden}, type);
            const bool has_bias = splits == 3;
            Tensor total = at::zeros({rows, hidden});
            for (int rank = 0; rank < size; ++rank) {
              Tensor part = part_of(rank).to(at::kFloat);
              if (has_bias && rank == 1) {  // summed behind it
                Tensor sum = bias.to(at::kFloat).expand({rows, hidden}).clone();
                for (int64_t s = 0; s < splits; ++s) sum += part[s];
                part = sum;
              } else if (splits > 0) {
                Tensor sum = part[0].clone();
                for (int64_t s = 1; s < splits; ++s) sum += part[s];
                part = sum;
              }
              total += part.to(type).to(at::kFloat);
            }
            const Tensor before = made_up(8, {rows, hidden}, type),
                         weight = made_up(9, {hidden}, type);
            const Tensor after = (total + before.to(at::kFloat)).to(type);
            const Tensor residual = before.to(at::kCUDA);
            ASSERT_TRUE(peers->has_add_norm(residual));
            const Tensor normed =
                peers->add_norm_(residual, part_of(mesh.rank()).to(at::kCUDA),
                                 has_bias && mesh.rank() == 1 ? bias.to(at::kCUDA) : Tensor(),
                                 weight.to(at::kCUDA), 1e-6);
            EXPECT_TRUE(at::equal(residual.cpu(), after));
            const Tensor wide = after.to(at::kDouble);
            const Tensor expected =
                wide * (wide.square().mean(1, true) + 1e-6).rsqrt() * weight.to(at::kDouble);
            // One rounding to bfloat16.
            EXPECT_LT((normed.cpu().to(at::kDouble) - expected).abs().max().item<double>(),
                      expected.abs().max().item<double>() / 250);
            expect_same_everywhere(mesh, normed);
          }
        }
      }
    }
    EXPECT_EQ(peers->problem(), "");
  });
}

TEST(GpuPeers, ColumnsOfTheRanksAreGathered) {
  SLIME_NEEDS_GPUS(2);
  on_gpus({.tp = 2}, [](const Mesh& mesh) {
    const auto peers = peers_of(mesh);
    const int size = mesh.world().size();
    for (const int64_t columns : {8, 317, 1024, 151'936}) {
      for (const int64_t rows : {1, 2, 27, 64, 256}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
        const int64_t room = (columns + size - 1) / size, begin = mesh.rank() * room;
        const Tensor all =
            at::arange(rows * columns, kOnGpu.dtype(at::kFloat)).view({rows, columns});
        const Tensor own = all.narrow(1, begin, std::min(room, columns - begin)).contiguous();
        EXPECT_TRUE(at::equal(peers->gather_columns(own, columns), all));
      }
    }
    EXPECT_EQ(peers->problem(), "");
  });
}

TEST(GpuPeers, ARankThatDoesNotComeEndsTheWaitAndIsNamed) {
  SLIME_NEEDS_GPUS(2);
  on_gpus({.tp = 2}, [](const Mesh& mesh) {
    const auto peers = peers_of(mesh, /*deadline_ms=*/500);
    for (const int64_t limit : {kAllWords, int64_t{0}}) {
      if (mesh.rank() == 1) continue;
      peers->set_flagged_words_limit(limit);
      const Tensor x = at::ones({4096}, kOnGpu.dtype(at::kBFloat16));
      peers->sum_(x);
      for (int i = 0; i < 100; ++i) peers->sum_(x);  // these do not wait any more
      x.cpu();
      EXPECT_EQ(peers->problem(), "rank 1 of the group has not come within 500 ms");
      EXPECT_EQ(at::ones({1000}, kOnGpu).sum().item<float>(), 1000);  // the GPU goes on
    }
    mesh.world().barrier("the memory of the others is written to");
  });
}

TEST(GpuPeers, AnAbortSetsWaitingKernelsFree) {
  SLIME_NEEDS_GPUS(2);
  on_gpus({.tp = 2}, [](const Mesh& mesh) {
    const auto peers = peers_of(mesh);
    if (mesh.rank() == 0) {
      const Tensor x = at::ones({4096}, kOnGpu.dtype(at::kBFloat16));
      peers->sum_(x);
      peers->abort();
      x.cpu();
      EXPECT_THAT(peers->problem(), HasSubstr("given up while rank 1"));
    }
    mesh.world().barrier("the memory of the others is written to");
  });
}

}  // namespace
}  // namespace slime::parity
