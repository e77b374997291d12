#include "rollout/virtual_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace slime::rollout {
namespace {

using Groups = std::vector<int64_t>;

/// Lengths by number of sample; all of them are known from the beginning.
VirtualTime with_lengths(int64_t num_slots, const std::vector<std::vector<int64_t>>& groups) {
  VirtualTime time(num_slots);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const int64_t first =
        time.join(static_cast<int64_t>(g), std::vector<bool>(groups[g].size(), true));
    for (std::size_t i = 0; i < groups[g].size(); ++i)
      time.ended(first + static_cast<int64_t>(i), groups[g][i]);
  }
  return time;
}

int64_t unknown(int64_t) {
  ADD_FAILURE() << "everything is known";
  return 0;
}

TEST(VirtualTime, AGroupFinishesWithItsLongestSample) {
  VirtualTime time = with_lengths(8, {{4, 9}, {5, 5}, {6, 1}});
  EXPECT_EQ(time.next_groups(unknown), Groups{1});
  EXPECT_EQ(time.now(), 5);
  EXPECT_EQ(time.num_sampled(0), 4);
  EXPECT_EQ(time.num_sampled(1), 5);
  EXPECT_TRUE(time.has_ended(0));
  EXPECT_FALSE(time.has_ended(1));
  EXPECT_EQ(time.next_groups(unknown), Groups{2});
  EXPECT_EQ(time.next_groups(unknown), Groups{0});
  EXPECT_EQ(time.next_groups(unknown), Groups{});
}

TEST(VirtualTime, GroupsOfOneTickComeByOrdinal) {
  VirtualTime time(8);
  time.ended(time.join(7, {true}), 3);
  time.ended(time.join(2, {true}), 3);
  EXPECT_EQ(time.next_groups(unknown), (Groups{2, 7}));
}

TEST(VirtualTime, WhoeverIsFirstInLineGetsTheSlotThatBecomesFree) {
  // Slot 0: a for 3 ticks, c from 3 to 4. Slot 1: b for 5 ticks. d begins in tick 4.
  VirtualTime time = with_lengths(2, {{3}, {5}, {1}, {1}});
  EXPECT_EQ(time.next_groups(unknown), Groups{0});
  EXPECT_EQ(time.num_sampled(2), 0);
  EXPECT_EQ(time.next_groups(unknown), Groups{2});
  EXPECT_EQ(time.now(), 4);
  EXPECT_EQ(time.next_groups(unknown), (Groups{1, 3}));
  EXPECT_EQ(time.now(), 5);
}

TEST(VirtualTime, AGroupThatDrawsNothingFinishesWhereItJoins) {
  VirtualTime time(2);
  time.ended(time.join(0, {true}), 4);
  EXPECT_EQ(time.next_groups(unknown), Groups{0});
  time.join(1, {false, false});
  EXPECT_EQ(time.next_groups(unknown), Groups{1});
  EXPECT_EQ(time.now(), 4);
  EXPECT_TRUE(time.has_ended(1));
}

TEST(VirtualTime, DoesNotMoveBeforeItIsCertainThatNobodyEndsEarlier) {
  VirtualTime time(4);
  const int64_t slow = time.join(0, {true});
  const int64_t slower = time.join(1, {true});
  time.ended(time.join(2, {true}), 6);
  std::vector<int64_t> sampled{2, 1};
  const auto progress = [&](int64_t number) {
    return sampled.at(static_cast<std::size_t>(number));
  };
  EXPECT_EQ(time.next_groups(progress), Groups{});
  ASSERT_TRUE(time.awaited());
  EXPECT_EQ(time.awaited()->number, slower);
  EXPECT_EQ(time.awaited()->num_tokens, 6);
  sampled = {6, 6};
  EXPECT_EQ(time.next_groups(progress), Groups{2});
  EXPECT_EQ(time.num_sampled(slow), 6);
}

TEST(VirtualTime, WhoWaitsInLineNeedNotHaveSampledAnything) {
  VirtualTime time(1);
  time.ended(time.join(0, {true}), 6);
  const int64_t waiting = time.join(1, {true});
  EXPECT_EQ(time.next_groups(unknown), Groups{0});
  EXPECT_EQ(time.num_sampled(waiting), 0);
  EXPECT_EQ(time.next_groups([](int64_t) { return 100; }), Groups{});
  EXPECT_FALSE(time.awaited()) << "it has a slot, but nobody knows its length";
}

/// The same rules one tick at a time, for samples whose lengths are all known.
std::vector<std::pair<int64_t, Groups>> tick_by_tick(
    int64_t num_slots, const std::vector<std::vector<int64_t>>& groups) {
  struct Running {
    int64_t group, left;
  };
  std::deque<Running> line;
  std::vector<int64_t> open(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const int64_t length : groups[g]) line.push_back({static_cast<int64_t>(g), length});
    open[g] = static_cast<int64_t>(groups[g].size());
  }
  std::vector<Running> drawing;
  std::vector<std::pair<int64_t, Groups>> finished;
  for (int64_t tick = 0; !line.empty() || !drawing.empty(); ++tick) {
    for (; !line.empty() && static_cast<int64_t>(drawing.size()) < num_slots; line.pop_front())
      drawing.push_back(line.front());
    Groups now;
    for (Running& running : drawing) {
      if (--running.left == 0 && --open[static_cast<std::size_t>(running.group)] == 0)
        now.push_back(running.group);
    }
    std::erase_if(drawing, [](const Running& running) { return running.left == 0; });
    std::ranges::sort(now);
    if (!now.empty()) finished.emplace_back(tick + 1, now);
  }
  return finished;
}

TEST(VirtualTime, IsTheSameHoweverTheNewsArrive) {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    std::mt19937 rng(seed);
    std::vector<std::vector<int64_t>> groups(20);
    std::vector<int64_t> lengths;
    for (auto& group : groups) {
      for (int i = 0; i < 3; ++i) {
        group.push_back(1 + static_cast<int64_t>(rng() % 12));
        lengths.push_back(group.back());
      }
    }
    VirtualTime time(7);
    for (std::size_t g = 0; g < groups.size(); ++g)
      time.join(static_cast<int64_t>(g), {true, true, true});
    std::vector<int64_t> sampled(lengths.size(), 0);
    std::vector<std::size_t> going;
    for (std::size_t i = 0; i < lengths.size(); ++i) going.push_back(i);
    std::vector<std::pair<int64_t, Groups>> seen;
    while (!going.empty()) {
      // Any sample draws next, whether it has a slot in virtual time or not.
      const std::size_t pick = rng() % going.size();
      const std::size_t number = going[pick];
      if (++sampled[number] == lengths[number]) {
        time.ended(static_cast<int64_t>(number), lengths[number]);
        going.erase(going.begin() + static_cast<std::ptrdiff_t>(pick));
      }
      const auto progress = [&](int64_t n) { return sampled[static_cast<std::size_t>(n)]; };
      for (Groups now = time.next_groups(progress); !now.empty(); now = time.next_groups(progress))
        seen.emplace_back(time.now(), now);
    }
    EXPECT_EQ(seen, tick_by_tick(7, groups)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace slime::rollout
