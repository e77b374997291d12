#include "gateway/policy.h"

#include <gtest/gtest.h>

#include <map>

namespace slime::gateway {
namespace {

std::vector<Candidate> workers(std::vector<int64_t> loads) {
  std::vector<Candidate> candidates;
  for (const int64_t load : loads) {
    const auto number = static_cast<int64_t>(candidates.size()) + 1;
    candidates.push_back({.id = WorkerId{number},
                          .load = load,
                          .place = hash_of("127.0.0.1:" + std::to_string(30000 + number))});
  }
  return candidates;
}

Policy policy(PolicyKind kind) { return Policy({.kind = kind}, 7); }

RequestFacts of_key(std::string key) {
  return {.rids = {}, .routing_key = std::move(key), .prompt = {}};
}
RequestFacts of_prompt(std::string_view prompt) {
  return {.rids = {}, .routing_key = {}, .prompt = prompt};
}

TEST(Policy, RoundRobinTakesTurns) {
  Policy robin = policy(PolicyKind::kRoundRobin);
  const auto three = workers({0, 9, 0});
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(robin.choose(three, {}), i % 3);
}

TEST(Policy, RandomReachesEverybody) {
  Policy random = policy(PolicyKind::kRandom);
  std::map<std::size_t, int> counts;
  const auto three = workers({0, 9, 0});
  for (int i = 0; i < 300; ++i) ++counts[random.choose(three, {})];
  for (std::size_t i = 0; i < 3; ++i) EXPECT_GT(counts[i], 60);
}

TEST(Policy, LeastLoadTakesTheLeastAndDrawsAmongEquals) {
  Policy least = policy(PolicyKind::kLeastLoad);
  std::map<std::size_t, int> counts;
  const auto four = workers({3, 1, 2, 1});
  for (int i = 0; i < 100; ++i) ++counts[least.choose(four, {})];
  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_GT(counts[1], 20);
  EXPECT_GT(counts[3], 20);
}

TEST(Policy, PowerOfTwoNeverTakesTheMostLoaded) {
  Policy two = policy(PolicyKind::kPowerOfTwo);
  std::map<std::size_t, int> counts;
  const auto three = workers({5, 1, 9});
  for (int i = 0; i < 300; ++i) ++counts[two.choose(three, {})];
  EXPECT_EQ(counts[2], 0);
  EXPECT_GT(counts[1], counts[0]);
  EXPECT_GT(counts[0], 0);
  const auto alone = workers({4});
  EXPECT_EQ(two.choose(alone, {}), 0U);
}

TEST(Policy, ConsistentHashingKeepsAKeyAndMovesOnlyWhoseWorkerLeft) {
  Policy hashing = policy(PolicyKind::kConsistentHashing);
  const auto five = workers({0, 0, 0, 0, 0});
  auto four = five;
  four.erase(four.begin() + 2);
  int num_moved = 0;
  std::map<WorkerId, int> counts;
  for (int i = 0; i < 1000; ++i) {
    const RequestFacts facts = of_key("session-" + std::to_string(i));
    const WorkerId before = five[hashing.choose(five, facts)].id;
    EXPECT_EQ(five[hashing.choose(five, facts)].id, before);
    const WorkerId after = four[hashing.choose(four, facts)].id;
    if (before != five[2].id) {
      EXPECT_EQ(after, before);
    }
    num_moved += after != before ? 1 : 0;
    ++counts[before];
  }
  EXPECT_EQ(num_moved, counts[five[2].id]);
  for (const auto& [id, count] : counts) EXPECT_NEAR(count, 200, 60);  // four deviations
}

TEST(Policy, ConsistentHashingWithoutAKeyGoesByLoad) {
  Policy hashing = policy(PolicyKind::kConsistentHashing);
  const auto three = workers({2, 0, 2});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(hashing.choose(three, {}), 1U);
}

TEST(Policy, CacheAwareFollowsThePromptUntilLoadsDifferTooMuch) {
  Policy aware({.kind = PolicyKind::kCacheAware, .balance_abs_threshold = 10}, 7);
  const std::string prompt(4000, 'x');
  const std::string longer = prompt + std::string(1000, 'y');
  const auto first = workers({0, 1, 1});
  EXPECT_EQ(aware.choose(first, of_prompt(prompt)), 0U);
  const auto busier = workers({9, 1, 1});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(aware.choose(busier, of_prompt(longer)), 0U);
  const auto uneven = workers({12, 1, 2});
  EXPECT_EQ(aware.choose(uneven, of_prompt(longer)), 1U);
}

TEST(Policy, CacheAwareIgnoresASmallSharedBeginning) {
  Policy aware({.kind = PolicyKind::kCacheAware, .cache_threshold = 0.5}, 7);
  const std::string system(1000, 's');
  const auto first = workers({0, 1});
  EXPECT_EQ(aware.choose(first, of_prompt(system + std::string(5000, 'a'))), 0U);
  const auto later = workers({2, 1});
  EXPECT_EQ(aware.choose(later, of_prompt(system + std::string(5000, 'b'))), 1U);
}

TEST(Policy, CacheAwareForgetsWhoIsGone) {
  Policy aware = policy(PolicyKind::kCacheAware);
  const std::string prompt(4000, 'x');
  const auto two = workers({0, 1});
  EXPECT_EQ(aware.choose(two, of_prompt(prompt)), 0U);
  aware.forget(two[0].id);
  const auto again = workers({1, 0});
  EXPECT_EQ(aware.choose(again, of_prompt(prompt)), 1U);
}

TEST(Policy, NamesLeadToKindsAndBack) {
  for (const char* name : {"random", "round_robin", "power_of_two", "least_load", "cache_aware",
                           "consistent_hashing"}) {
    ASSERT_TRUE(policy_of(name));
    EXPECT_EQ(name_of(*policy_of(name)), name);
  }
  EXPECT_FALSE(policy_of("bucket"));
}

}  // namespace
}  // namespace slime::gateway
