#include "view/sample_entry.h"

#include <gtest/gtest.h>

#include <cmath>

namespace slime::view {
namespace {

TEST(SampleEntry, HasWhatTablesFilterAndSortBy) {
  const auto entry = read_entry(
      R"({"group_index": 4, "index_in_group": 3, "prompt": "reward: 7", "tokens": [1, 2, 3, 4],)"
      R"( "metadata": {"reward": 9, "status": "failed"}, "response_length": 3, "reward": 0.5,)"
      R"( "loss_mask": [1, 0, 1], "weight_versions": [[6, 1], [5, 2]], "status": "truncated",)"
      R"( "rollout_log_probs": [-0.5, -1.0, -0.25], "train_log_probs": [-0.5, -9.0, -0.5],)"
      R"( "remove_sample": true})",
      "");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->group, 4);
  EXPECT_EQ(entry->index_in_group, 3U);
  EXPECT_EQ(entry->length, 3U);
  EXPECT_EQ(entry->reward, 0.5F);
  EXPECT_EQ(entry->difference, 0.25F);  // the token of a tool does not count
  EXPECT_EQ(entry->oldest_version, 5);
  EXPECT_EQ(entry->newest_version, 6);
  EXPECT_EQ(entry->status, Status::kTruncated);
  EXPECT_TRUE(entry->is_removed);
}

TEST(SampleEntry, RewardsOfRecordsAreReadByTheirKey) {
  constexpr std::string_view kLine = R"({"reward": {"score": 1, "acc": {"acc": 3}, "acc2": 2.5}})";
  EXPECT_EQ(read_entry(kLine, "")->reward, 1.0F);
  EXPECT_EQ(read_entry(kLine, "acc2")->reward, 2.5F);
  EXPECT_FALSE(read_entry(kLine, "acc")->has_reward());
  EXPECT_EQ(read_entry(R"({"reward": true})", "")->reward, 1.0F);
  EXPECT_FALSE(read_entry(R"({"reward": null})", "")->has_reward());
  EXPECT_FALSE(read_entry(R"({"reward": 1e400})", "")->has_reward());
}

TEST(SampleEntry, UnknownNumbersKeepTheirPlace) {
  const auto entry =
      read_entry(R"({"rollout_log_probs": [-1, null, -1], "train_log_probs": [-1, -5, -3]})", "");
  EXPECT_EQ(entry->difference, 2.0F);
  EXPECT_FALSE(read_entry(R"({"rollout_log_probs": [-1]})", "")->has_difference());
}

TEST(SampleEntry, LinesThatAreNoObjectsHaveNone) {
  EXPECT_FALSE(read_entry("", ""));
  EXPECT_FALSE(read_entry("[1]", ""));
  EXPECT_FALSE(read_entry(R"({"reward": 1)", ""));
}

}  // namespace
}  // namespace slime::view
