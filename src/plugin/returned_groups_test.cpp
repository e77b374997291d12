#include "plugin/returned_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

using ::testing::HasSubstr;

json::object record(int64_t index) {
  return {{"index", index},
          {"group_index", 4},
          {"tokens", {1, 2, 3}},
          {"response_length", 2},
          {"reward", 0.5},
          {"status", "truncated"},
          {"rollout_log_probs", {-1, -2}}};
}

Group given_group() {
  Group group{.ordinal = 4, .samples = std::vector<Sample>(3)};
  for (std::size_t i = 0; i < 3; ++i) {
    group.samples[i].ordinal = 12 + static_cast<int64_t>(i);
    group.samples[i].group = 4;
    group.samples[i].index_in_group = static_cast<int64_t>(i);
  }
  return group;
}

Group read(const json::value& records, const Group& of = given_group()) {
  return read_group(records, {}, of, {.samples = {}, .samples_per_prompt = 3, .version = 8});
}

std::string problem_of(const json::value& records) {
  try {
    read(records);
    return "none";
  } catch (const net::FrameError& error) {
    return error.what();
  }
}

TEST(ReturnedGroups, SamplesAreKnownByTheirNumbersInAnyOrder) {
  const Group group = read(json::array{record(14), record(12)});
  EXPECT_EQ(group.ordinal, 4);
  ASSERT_EQ(group.samples.size(), 2u);
  EXPECT_EQ(group.samples[0].ordinal, 14);
  EXPECT_EQ(group.samples[1].ordinal, 12);
  EXPECT_EQ(group.samples[0].status, Status::kTruncated);
  EXPECT_EQ(group.samples[0].versions, (std::vector<VersionRun>{{8, 2}}));
  // Those that are not known take the places that are left.
  const Group others = read(json::array{record(99), record(12), record(12)});
  EXPECT_EQ(others.samples[0].ordinal, 13);
  EXPECT_EQ(others.samples[1].ordinal, 12);
  EXPECT_EQ(others.samples[2].ordinal, 14);
}

TEST(ReturnedGroups, AListIsASampleThatBecameSeveral) {
  Group group = read(json::array{json::array{record(12), record(12)}, record(13)});
  name_executions(group);
  ASSERT_EQ(group.samples.size(), 3u);
  EXPECT_EQ(group.samples[1].ordinal, 12);
  EXPECT_EQ(group.samples[1].rollout_id, 12);
  EXPECT_FALSE(group.samples[2].rollout_id);
}

TEST(ReturnedGroups, WhatIsPendingOrAbortedHasEnded) {
  json::object pending = record(12);
  pending.erase("status");
  EXPECT_EQ(read(json::array{pending}).samples[0].status, Status::kCompleted);
  pending["status"] = "aborted";
  EXPECT_EQ(read(json::array{pending}).samples[0].status, Status::kCompleted);
}

TEST(ReturnedGroups, TheGroupIsThatOfItsFirstSample) {
  EXPECT_EQ(ordinal_of(json::array{record(1)}), 4);
  EXPECT_EQ(ordinal_of(json::array{json::array{record(1)}}), 4);
  EXPECT_EQ(ordinal_of(json::object{{"error", "x"}, {"group_index", 7}}), 7);
  EXPECT_FALSE(ordinal_of(json::array{json::object{{"index", 1}}}));
  EXPECT_FALSE(ordinal_of(json::array{}));
  EXPECT_FALSE(ordinal_of(json::array{json::array{}}));
  EXPECT_FALSE(ordinal_of(3));
}

TEST(ReturnedGroups, WhatCannotBeTrainedIsRefused) {
  const auto with = [](std::string_view name, json::value value) {
    json::object changed = record(12);
    changed[name] = std::move(value);
    return json::array{changed};
  };
  const std::pair<json::value, std::string> cases[] = {
      {json::object{{"error", "ValueError: it is NaN"}}, "it is NaN"},
      {3, "is a list of groups"},
      {json::array{}, "a group without samples"},
      {json::array{3}, "a group is a list of samples"},
      {json::array{json::array{}}, "a list without a sample"},
      {json::array{record(1), record(2), record(3), record(4)}, "a group of 4 samples"},
      {with("reward", nullptr), "Sample.reward is missing"},
      {with("reward", "much"), "Sample.reward: "},
      {with("status", "failed"), "set its status to failed"},
      {with("tokens", {1}), "Sample.response_length is 2 of 1"},
      {with("response_length", 0), "Sample.rollout_log_probs has 2"},
  };
  for (const auto& [records, expected] : cases)
    EXPECT_THAT(problem_of(records), HasSubstr(expected));
  json::object one = record(12), other = record(12);
  one["rollout_id"] = 1;
  EXPECT_THAT(problem_of(json::array{json::array{one, other}}), HasSubstr("different rollout_ids"));
}

}  // namespace
}  // namespace slime::plugin
