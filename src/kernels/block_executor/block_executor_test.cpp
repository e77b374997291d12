#include "kernels/block_executor/block_executor.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "core/error.h"

namespace slime::kernels {
namespace {

BlockExecutor& here() { return BlockExecutor::current(); }
const ThreadPlace& place() { return BlockExecutor::place; }

class BlockExecutors : public testing::TestWithParam<BlockExecutor::Options> {};

INSTANTIATE_TEST_SUITE_P(Ways, BlockExecutors,
                         testing::Values(BlockExecutor::Options{32, false},
                                         BlockExecutor::Options{32, true},
                                         BlockExecutor::Options{64, false},
                                         BlockExecutor::Options{64, true}));

TEST_P(BlockExecutors, EveryThreadOfEveryBlockRunsOnce) {
  BlockExecutor executor(GetParam());
  std::vector<int> runs(2 * 3 * 40);
  executor.run({2, 3}, {8, 5}, 0, [&] {
    const unsigned block = place().block.y * 2 + place().block.x;
    ++runs[block * 40 + place().thread.y * 8 + place().thread.x];
  });
  EXPECT_EQ(runs, std::vector<int>(240, 1));
}

TEST_P(BlockExecutors, ABarrierParts) {
  BlockExecutor executor(GetParam());
  std::vector<unsigned> written(100), read(100);
  executor.run({1}, {100}, 0, [&] {
    const unsigned i = place().thread.x;
    written[i] = i;
    here().wait_for_block();
    read[i] = written[99 - i];
  });
  for (unsigned i = 0; i < 100; ++i) EXPECT_EQ(read[i], 99 - i);
}

TEST_P(BlockExecutors, LanesExchangeWithinTheirHalfOfAWave) {
  BlockExecutor executor(GetParam());
  std::vector<uint64_t> got(128), bits(128);
  executor.run({1}, {128}, 0, [&] {
    const unsigned i = place().thread.x, lane = here().lane_of_wave();
    got[i] = here().exchange(1000 + i, lane / 32 * 32 + (lane % 32 ^ 5));
    bits[i] = here().ballot(i % 3 == 0) >> (lane / 32 * 32) & 0xffffffffU;
  });
  for (unsigned i = 0; i < 128; ++i) {
    EXPECT_EQ(got[i], 1000 + (i ^ 5));
    uint64_t expected = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
      expected |= uint64_t{(i / 32 * 32 + lane) % 3 == 0} << lane;
    EXPECT_EQ(bits[i], expected);
  }
}

TEST_P(BlockExecutors, ThreadsThatHaveEndedAreNotWaitedForAndOfferNothing) {
  BlockExecutor executor(GetParam());
  std::vector<uint64_t> bits(32);
  bool is_all = false;
  executor.run({1}, {64}, 0, [&] {
    const unsigned i = place().thread.x;
    if (i >= 32 || i % 2 == 1) return;
    bits[i] = here().ballot(true) & 0xffffffffU;
    is_all = here().all_of_block(i != 4);
  });
  for (unsigned i = 0; i < 32; i += 2) EXPECT_EQ(bits[i], 0x55555555U);
  EXPECT_FALSE(is_all);
}

TEST_P(BlockExecutors, WhatAThreadThrowsComesOutAndTheExecutorIsStillGood) {
  BlockExecutor executor(GetParam());
  const auto failing = [&] {
    here().wait_for_block();
    if (place().thread.x == 7) throw std::runtime_error("seven");
    here().wait_for_block();
  };
  EXPECT_THROW(executor.run({2}, {40}, 0, failing), std::runtime_error);
  int runs = 0;
  executor.run({1}, {40}, 0, [&] { ++runs; });
  EXPECT_EQ(runs, 40);
}

TEST_P(BlockExecutors, LanesThatWaitForLanesAtABarrierAreAMistake) {
  BlockExecutor executor(GetParam());
  const auto divided = [&] {
    if (place().thread.x % 2 == 0) return here().wait_for_block();
    here().ballot(true);
  };
  EXPECT_THROW(executor.run({1}, {32}, 0, divided), BugError);
}

TEST_P(BlockExecutors, DynamicSharedMemoryBeginsAsNoNumbers) {
  BlockExecutor executor(GetParam());
  executor.run({3}, {1}, 100, [&] {
    unsigned char* memory = BlockExecutor::dynamic_shared_memory();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 16, 0U);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(memory[i], 0xff);
    memory[place().block.x] = 0;
  });
}

TEST(BlockExecutor, ALackingBarrierGivesOtherNumbersInOneOfTheTwoOrders) {
  const auto last_written = [](bool is_descending) {
    BlockExecutor executor({.is_descending = is_descending});
    int shared = 0, seen = 0;
    executor.run({1}, {32}, 0, [&] {
      if (place().thread.x == 0) shared = 1;
      if (place().thread.x == 31) seen = shared;  // without a barrier between
    });
    return seen;
  };
  EXPECT_NE(last_written(false), last_written(true));
}

TEST(BlockExecutor, PlantedMistakesHoldNobodyUpAndLeaveOneThreadOut) {
  BlockExecutor hasty({.passes_barriers = true}), short_of_one({.absent_thread = 0});
  int shared = 0, seen = 0, runs = 0;
  hasty.run({1}, {32}, 0, [&] {
    if (place().thread.x == 31) shared = 1;
    here().wait_for_block();
    if (place().thread.x == 0) seen = shared;
  });
  EXPECT_EQ(seen, 0);
  short_of_one.run({2}, {32}, 0, [&] {
    here().wait_for_block();
    runs += here().ballot(true) == 0xfffffffeU ? 1 : 0;
  });
  EXPECT_EQ(runs, 62);
  short_of_one.run({2}, {1}, 0, [&] { ADD_FAILURE() << "the only thread is left out"; });
}

}  // namespace
}  // namespace slime::kernels
