#include "plugin/read_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/frame_channel.h"
#include "plugin/sample_record.h"

namespace slime::plugin {
namespace {

using ::testing::ElementsAre;

Sample drawn() {
  Sample sample{.ordinal = 17, .group = 4, .index_in_group = 1, .prompt_length = 1};
  sample.tokens = {12, 42, 2};
  sample.prompt = "2+2=";
  sample.response = "4";
  sample.label = "4";
  sample.metadata = {{"level", 3}};
  sample.log_probs = {-0.75F, -0.25F};
  sample.loss_mask = {1, 0};
  sample.versions = {{5, 1}, {6, 1}};
  sample.status = Status::kTruncated;
  sample.reward = {{"score", 1}};
  sample.rollout_id = 3;
  sample.remove_sample = true;
  sample.top_p_ids = {42, 7, 2};
  sample.top_p_offsets = {0, 2, 3};
  sample.routed_experts = {0, 1, 0, 1};
  sample.engine_prompt_tokens = 9;
  sample.cached_tokens = 4;
  return sample;
}

TEST(ReadRecord, ASampleThatNobodyTouchedComesBackAsItWas) {
  Columns columns;
  const json::object record = to_record(drawn(), columns);
  std::vector<std::string> without_place;
  const Sample back = read_record(record, columns, drawn(), without_place);
  EXPECT_EQ(to_json(back), to_json(drawn()));
  EXPECT_TRUE(without_place.empty());
}

TEST(ReadRecord, AbsentFieldsAreAtTheirDefaultsAndOursStay) {
  std::vector<std::string> without_place;
  const Sample back = read_record({{"tokens", {12, 42}}, {"response_length", 1}, {"index", 99}}, {},
                                  drawn(), without_place);
  EXPECT_EQ(back.ordinal, 17);
  EXPECT_EQ(back.tokens, (std::vector<TokenId>{12, 42}));
  EXPECT_TRUE(back.log_probs.empty());
  EXPECT_TRUE(back.reward.is_null());
  EXPECT_TRUE(back.metadata.empty());
  EXPECT_TRUE(back.versions.empty()) << "nobody knows who made it";
  EXPECT_TRUE(back.routed_experts.empty());
  EXPECT_EQ(back.status, Status::kPending);
}

TEST(ReadRecord, OneVersionOfAllCallsIsThatOfAllTokens) {
  std::vector<std::string> without_place;
  json::object record{{"tokens", {12, 42, 3, 4}}, {"response_length", 3}};
  record["weight_versions"] = {"7", "7"};
  EXPECT_EQ(read_record(record, {}, drawn(), without_place).versions,
            (std::vector<VersionRun>{{7, 3}}));
  record["weight_versions"] = {"7", "8"};
  EXPECT_TRUE(read_record(record, {}, drawn(), without_place).versions.empty());
  record["weight_versions"] = {"default"};
  EXPECT_TRUE(read_record(record, {}, drawn(), without_place).versions.empty());
}

TEST(ReadRecord, NamesWhatHasNoPlace) {
  std::vector<std::string> without_place;
  read_record({{"train_metadata", 1}, {"extra", {{"own", 2}}}}, {}, drawn(), without_place);
  EXPECT_THAT(without_place, ElementsAre("train_metadata", "own"));
}

TEST(ReadRecord, RefusesWhatDoesNotFitTogether) {
  const json::object wrong[] = {
      {{"tokens", {1, 2}}, {"response_length", 3}},
      {{"tokens", {1, 2}}, {"response_length", -1}},
      {{"tokens", {1, "2"}}},
      {{"tokens", {1, 3000000000}}},
      {{"tokens", {1, 2}}, {"response_length", 1}, {"loss_mask", {1, 1}}},
      {{"tokens", {1, 2}}, {"response_length", 1}, {"loss_mask", {2}}},
      {{"tokens", {1, 2}}, {"response_length", 1}, {"rollout_log_probs", {-1, -1}}},
      {{"tokens", {1, 2}}, {"response_length", 1}, {"rollout_top_p_token_offsets", {0, 1}}},
      {{"tokens", json::object{{"$column", 0}}}},
      {{"status", "great"}},
      {{"metadata", 3}},
  };
  for (const json::object& record : wrong) {
    std::vector<std::string> without_place;
    EXPECT_THROW(read_record(record, {}, drawn(), without_place), net::FrameError)
        << json::serialize(record);
  }
}

}  // namespace
}  // namespace slime::plugin
