#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "kernels/cpu/thread_pool.h"

namespace slime::kernels::cpu {
namespace {

TEST(OwnThreads, AreUsedByTheThreadThatMadeThemAndGoWithThem) {
  const int shared = num_threads();
  std::thread([&] {
    {
      const OwnThreads own(shared + 2);
      EXPECT_EQ(num_threads(), shared + 2);
      std::atomic<int64_t> sum{0};
      parallel_chunks(1000, [&](int64_t chunk) { sum += chunk; });
      EXPECT_EQ(sum, 499500);
    }
    EXPECT_EQ(num_threads(), shared);
  }).join();
}

TEST(OwnThreads, TwoCallersWorkAtTheSameTime) {
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  const auto work = [&] {
    const OwnThreads own(1);
    parallel_chunks(1, [&](int64_t) {
      ++inside;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (inside < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      if (inside == 2) met = true;
    });
  };
  std::thread one(work), other(work);
  one.join();
  other.join();
  EXPECT_TRUE(met);
}

}  // namespace
}  // namespace slime::kernels::cpu
