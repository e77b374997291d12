#include "buffer/rollout_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

namespace slime::buffer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RolloutItem item_of(int instance, const std::string& uid) {
  const auto item = parse_rollout_item(
      fmt::format(R"({{"instance_id":{},"uid":"{}","reward":0.5}})", instance, uid));
  EXPECT_TRUE(item.has_value());
  return *item;
}

/// Groups of two, with these instances written one after the other.
RolloutGroups groups_with(const std::vector<int>& instances) {
  RolloutGroups groups(2);
  for (std::size_t i = 0; i < instances.size(); ++i)
    groups.write(item_of(instances[i], fmt::format("u{}", i)));
  return groups;
}

constexpr std::size_t kAll = 1000;

TEST(RolloutItem, IsAnObjectWithAnInstance) {
  const auto item = parse_rollout_item("{\"instance_id\":\"a\",\n\"uid\":3,\r\n\"reward\":1}");
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->instance, "\"a\"");
  EXPECT_EQ(item->reward, 1.0);
  EXPECT_TRUE(item->uid.has_value());
  EXPECT_EQ(item->text, "{\"instance_id\":\"a\", \"uid\":3,  \"reward\":1}");
}

TEST(RolloutItem, BadBodiesAreRefusedWithTheReason) {
  for (const auto& [body, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "body"},
           {"[1]", "should be a JSON object"},
           {"{", "body"},
           {R"({"uid":1})", "instance_id: should be"},
           {R"({"instance_id":1.5})", "instance_id: should be"},
           {R"({"instance_id":""})", "instance_id: should be"},
           {R"({"instance_id":null})", "instance_id: should be"},
           {R"({"instance_id":")" + std::string(1025, 'a') + "\"}", "instance_id: should be"},
           {R"({"instance_id":1,"instance_id":2})", "twice"},
           {"{\"instance_id\":\"\xff\"}", "body"},
           {R"({"instance_id":1} {})", "body"}}) {
    const auto item = parse_rollout_item(body);
    ASSERT_FALSE(item.has_value()) << body;
    EXPECT_THAT(item.error().message, HasSubstr(reason)) << body;
  }
}

TEST(RolloutItem, UidsOfTwoInstancesAreTwo) {
  EXPECT_NE(item_of(1, "a").uid, item_of(2, "a").uid);
  EXPECT_NE(item_of(1, "a").uid, item_of(1, "b").uid);
  EXPECT_EQ(item_of(1, "a").uid, item_of(1, "a").uid);
}

TEST(RolloutGroups, AGroupIsWholeWithItsLastItem) {
  const RolloutGroups groups = groups_with({7, 8, 8, 9, 7});
  EXPECT_THAT(groups.next_groups(kAll, kAll), ElementsAre(1, 0)) << "in the order of getting whole";
  EXPECT_EQ(groups.num_filling(), 1U);
  EXPECT_EQ(groups.num_items(), 5);
}

TEST(RolloutGroups, TheNextItemOfAPromptBeginsAnotherGroup) {
  const RolloutGroups groups = groups_with({7, 7, 7, 7, 7});
  EXPECT_THAT(groups.next_groups(kAll, kAll), ElementsAre(0, 1));
  EXPECT_EQ(groups.num_filling(), 1U);
}

TEST(RolloutGroups, AGroupIsGivenOnce) {
  RolloutGroups groups = groups_with({7, 7, 8, 8});
  const auto given = groups.take({0}, "");
  ASSERT_TRUE(given.has_value());
  EXPECT_EQ(given->at(0).items.size(), 2U);
  EXPECT_FALSE(groups.take({0}, "").has_value());
  EXPECT_FALSE(groups.take({1, 1}, "").has_value());
  EXPECT_THAT(groups.next_groups(kAll, kAll), ElementsAre(1));
  EXPECT_EQ(groups.num_items(), 2);
}

TEST(RolloutGroups, AnAnswerIsBoundedInGroupsAndBytesButNeverEmpty) {
  const RolloutGroups groups = groups_with({1, 1, 2, 2, 3, 3});
  EXPECT_THAT(groups.next_groups(2, 1 << 20), ElementsAre(0, 1));
  EXPECT_THAT(groups.next_groups(kAll, 1), ElementsAre(0));
  const std::size_t of_two = groups.num_bytes() / 3 * 2;
  EXPECT_THAT(groups.next_groups(kAll, of_two), ElementsAre(0, 1));
}

TEST(RolloutGroups, AUidIsKnownAfterItsGroupHasGone) {
  RolloutGroups groups = groups_with({7, 7});
  groups.take({0}, "");
  EXPECT_TRUE(groups.knows(item_of(7, "u0")));
  EXPECT_FALSE(groups.knows(item_of(7, "u9")));
}

TEST(RolloutGroups, TheLastAnswersAreKept) {
  RolloutGroups groups(1);
  for (int i = 0; i < 10; ++i) {
    groups.write(item_of(i, "a"));
    groups.take({i}, fmt::format("request {}", i));
  }
  EXPECT_EQ(groups.find_answer("request 1"), nullptr);
  ASSERT_NE(groups.find_answer("request 9"), nullptr);
  EXPECT_EQ(groups.find_answer("request 9")->groups[0].number, 9);
  EXPECT_EQ(groups.find_answer(""), nullptr);
}

TEST(RolloutGroups, AnotherSizeBeginsWhereNothingWaits) {
  RolloutGroups groups = groups_with({7});
  EXPECT_TRUE(groups.may_begin("math", 2)) << "no task was named yet";
  EXPECT_FALSE(groups.may_begin("math", 3));
  groups.begin("math", 2);
  EXPECT_FALSE(groups.may_begin("code", 2));
  groups.write(item_of(7, "last"));
  groups.take({0}, "");
  EXPECT_TRUE(groups.may_begin("code", 3));
}

TEST(RolloutGroups, WhatWasWrittenSinceIsCounted) {
  RolloutGroups groups = groups_with({7, 7, 8});
  EXPECT_EQ(groups.written().num_items, 3);
  EXPECT_EQ(groups.written().instances.size(), 2U);
  EXPECT_EQ(groups.written().sum_of_rewards, 1.5);
  groups.forget_written();
  EXPECT_THAT(groups.written().instances, IsEmpty());
}

}  // namespace
}  // namespace slime::buffer
