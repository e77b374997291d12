#include "kernels/gpu/self_tests.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "kernels/cpu/reference.h"

namespace slime::kernels {
namespace {

using ::testing::HasSubstr;

/// A recording on the CPU: runs its body again in every `right_each`-th replay.
class StubGraph final : public GpuGraph {
 public:
  StubGraph(std::function<void()> body, int right_each)
      : body_(std::move(body)), right_each_(right_each) {}
  void replay() override {
    if (++num_replays_ % right_each_ == 0) body_();
  }

 private:
  std::function<void()> body_;
  int right_each_;
  int num_replays_ = 0;
};

int64_t differences(int right_each, int rounds) {
  const cpu::ReferenceDevice device;
  return replay_differences(
      device, at::kCPU,
      [right_each](const std::function<void()>& body) {
        return std::make_unique<StubGraph>(body, right_each);
      },
      rounds);
}

TEST(SelfTests, ARecordingThatRunsItsKernelsDiffersInNoByte) { EXPECT_EQ(differences(1, 5), 0); }

TEST(SelfTests, OneWrongReplayOfFiveIsFound) {
  EXPECT_GT(differences(2, 5), 0);
  EXPECT_GT(differences(5, 5), 0);
}

/// A driver of made-up memory, which may keep pages or forget what was written.
class StubMemory final : public GpuMemoryManager {
 public:
  int64_t kept_by_unmap = 0;  // bytes that an unmap leaves taken
  bool forgets = false;       // pages are not what was written
  int64_t free = int64_t{1} << 30;

  class Pages final : public GpuMemory {
   public:
    Pages(StubMemory& driver, int64_t bytes)
        : driver_(driver), numbers_(at::zeros({bytes / 4}, at::kInt)) {
      map();
    }
    ~Pages() override { unmap(); }
    int64_t size_bytes() const override { return numbers_.numel() * 4; }
    void map() override {
      if (!is_mapped_) driver_.free -= size_bytes();
      is_mapped_ = true;
    }
    void unmap() override {
      if (is_mapped_) driver_.free += size_bytes() - driver_.kept_by_unmap;
      is_mapped_ = false;
    }
    Tensor view(int64_t, at::IntArrayRef, at::ScalarType) const override {
      return driver_.forgets ? at::zeros_like(numbers_) : numbers_;
    }

   private:
    StubMemory& driver_;
    Tensor numbers_;
    bool is_mapped_ = false;
  };

  int64_t free_bytes() const override { return free; }
  void release_unused_memory() override {}
  std::unique_ptr<GpuMemory> reserve_memory(int64_t bytes) override {
    return std::make_unique<Pages>(*this, bytes);
  }
  void make_exportable(const std::function<void()>&) override { refuse(); }
  std::string export_memory(const Tensor&) override { refuse(); }
  std::unique_ptr<PeerMemory> open_peer_memory(const std::string&) override { refuse(); }
  std::unique_ptr<SharedGpuMemory> share_memory(int64_t) override { refuse(); }
  void lock_pages(const Tensor&) const override { refuse(); }
  void unlock_pages(const Tensor&) const override { refuse(); }
  GpuMemoryUse memory_use() const override { return {.total = int64_t{1} << 30, .free = free}; }
  void reset_peak_memory() override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("not a part of this test"); }
};

constexpr int64_t kBytes = int64_t{1} << 20;

TEST(SelfTests, MemoryThatComesBackEachTimeIsRight) {
  StubMemory driver;
  const ReturnedMemory found = returned_memory(driver, kBytes, 4);
  EXPECT_EQ(found.asked, kBytes);
  EXPECT_EQ(found.least_return, kBytes);
  EXPECT_EQ(found.lost, 0);
  EXPECT_TRUE(found.is_right());
  EXPECT_EQ(problem_of(found), "");
}

TEST(SelfTests, MemoryThatAnUnmapKeepsIsFound) {
  StubMemory driver;
  driver.kept_by_unmap = kBytes / 2;
  const ReturnedMemory found = returned_memory(driver, kBytes, 4);
  EXPECT_FALSE(found.is_right());
  EXPECT_EQ(found.lost, 2 * kBytes);
  EXPECT_EQ(problem_of(found),
            "of 1 MiB that were unmapped 0 came back to the driver in the worst round, and 2 are "
            "missing at the end");
}

TEST(SelfTests, MemoryThatIsReadOtherwiseThanItWasWrittenIsFound) {
  StubMemory driver;
  driver.forgets = true;
  const ReturnedMemory found = returned_memory(driver, kBytes, 2);
  EXPECT_EQ(found.wrong_bytes, 2 * kBytes);
  EXPECT_THAT(problem_of(found), HasSubstr("2097152 bytes of mapped memory"));
}

/// A twenty-fifth in a round is within what other processes may do; in each of five it is not.
TEST(SelfTests, ALittleThatIsLostInEachRoundIsFound) {
  StubMemory driver;
  driver.kept_by_unmap = kBytes / 25;
  EXPECT_FALSE(returned_memory(driver, kBytes, 5).is_right());
  EXPECT_TRUE(returned_memory(driver, kBytes, 2).is_right());
}

}  // namespace
}  // namespace slime::kernels
