#include "plugin/batch_functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two groups: the first with responses of 1 and 2 tokens, the second with one of 1.
std::vector<Group> three_responses() {
  std::vector<Group> groups(2);
  for (int64_t i = 0; i < 3; ++i) {
    Sample sample{.ordinal = 10 + i, .group = i / 2, .prompt_length = 1};
    sample.tokens = {7, 8};
    if (i == 1) sample.tokens.push_back(9);
    sample.versions = {{4, sample.response_length()}};
    sample.metadata["source_name"] = "math";
    groups[static_cast<std::size_t>(i / 2)].samples.push_back(std::move(sample));
  }
  return groups;
}

/// As hosts say them: lists of lists as columns.
Payload converted() {
  Payload answer;
  json::object data{{"response_lengths", {1, 2, 1}}, {"rewards", {0.5, -1, 2}}};
  data["tokens"] = {{"rows", add_column(answer.columns, std::vector<int64_t>{7, 8, 7, 8, 9, 5, 6})},
                    {"starts", add_column(answer.columns, std::vector<int64_t>{0, 2, 5, 7})}};
  answer.head["data"] = std::move(data);
  return answer;
}

json::object& data_of(Payload& answer) { return answer.head["data"].as_object(); }

TEST(BatchFunctions, TheDictionaryOfAConverterIsABatch) {
  Payload answer = converted();
  data_of(answer)["loss_masks"] = {{1}, {0, 1}, {0}};
  data_of(answer)["raw_reward"] = {1, 0, 1};
  data_of(answer)["rollout_ids"] = {3, 3, 4};
  data_of(answer)["truncated"] = {0, 1, 0};
  data_of(answer)["rollout_log_probs"] = {{-0.5}, {-1, -2}, {-0.25}};
  data_of(answer)["round_number"] = {1, 1, 1};
  std::vector<std::string> without_place;
  const train::TrainBatch batch = read_converted(answer, three_responses(), without_place);
  ASSERT_EQ(batch.samples.size(), 3u);
  const train::TrainSample& second = batch.samples[1];
  EXPECT_EQ(second.ordinal, 11);
  EXPECT_EQ(second.tokens, (std::vector<TokenId>{7, 8, 9}));
  EXPECT_EQ(second.prompt_length, 1);
  EXPECT_EQ(second.loss_mask, (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(second.rollout_log_probs, (std::vector<float>{-1, -2}));
  EXPECT_EQ(second.rollout_mask_total, 2) << "of both responses of execution 3";
  EXPECT_DOUBLE_EQ(second.reward, -1);
  EXPECT_DOUBLE_EQ(second.raw_reward, 0);
  EXPECT_TRUE(second.truncated);
  EXPECT_EQ(second.source_name, "math");
  EXPECT_EQ(second.versions, (std::vector<VersionRun>{{4, 2}}));
  EXPECT_TRUE(batch.samples[2].versions.empty()) << "other tokens than were sampled";
  EXPECT_THAT(without_place, ElementsAre("round_number"));
}

TEST(BatchFunctions, WhatADictionaryLacksIsOfTheOriginalsDefaults) {
  std::vector<std::string> without_place;
  const train::TrainBatch batch = read_converted(converted(), three_responses(), without_place);
  EXPECT_EQ(batch.rollout_ids(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(batch.samples[1].loss_mask, (std::vector<uint8_t>{1, 1}));
  EXPECT_EQ(batch.samples[1].rollout_mask_total, 2);
  EXPECT_DOUBLE_EQ(batch.samples[2].raw_reward, 2);
  EXPECT_TRUE(batch.samples[1].rollout_log_probs.empty());
}

std::string refusal(Payload answer) {
  std::vector<std::string> without_place;
  try {
    read_converted(answer, three_responses(), without_place);
  } catch (const net::FrameError& error) {
    return error.what();
  }
  return "";
}

TEST(BatchFunctions, ADictionaryThatIsNoBatchIsRefused) {
  const auto with = [](const char* key, json::value value) {
    Payload answer = converted();
    data_of(answer)[key] = std::move(value);
    return refusal(std::move(answer));
  };
  EXPECT_THAT(with("rewards", {1, 2}), HasSubstr("rewards has 2 entries for 3 samples"));
  EXPECT_THAT(with("rewards", nullptr), HasSubstr("lacks rewards"));
  EXPECT_THAT(with("rewards", {1, 2, "x"}), HasSubstr("no number"));
  EXPECT_THAT(with("tokens", {{7, 8}}), HasSubstr("tokens has 1 entries"));
  EXPECT_THAT(with("tokens", {{7, 8}, {7, 8.5, 9}, {5, 6}}), HasSubstr("no whole number"));
  EXPECT_THAT(with("tokens", {{7, 8}, {7, -8, 9}, {5, 6}}), HasSubstr("tokens has -8"));
  EXPECT_THAT(with("response_lengths", {2, 2, 1}), HasSubstr("a response of 2 among 2 tokens"));
  EXPECT_THAT(with("loss_masks", {{1}, {1}, {1}}), HasSubstr("1 entries for 2 response tokens"));
  EXPECT_THAT(with("loss_masks", {{1}, {1, 2}, {1}}), HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(with("rollout_log_probs", {{1}, {1}, {1}}), HasSubstr("1 numbers for 2"));
  Payload torn = converted();
  torn.columns[1] = std::vector<int64_t>{0, 2, 99, 7};
  EXPECT_THAT(refusal(torn), HasSubstr("tokens has places that are none"));
  EXPECT_THAT(refusal({}), HasSubstr("without data"));
}

TEST(BatchFunctions, RewardsThatWereProcessedAreOneForEachSample) {
  const ProcessedRewards processed = read_processed_rewards(
      {.head = {{"raw_rewards", {1, 0}}, {"rewards", {0.5, -0.5}}}, .columns = {}}, 2);
  EXPECT_THAT(processed.raw, ElementsAre(1, 0));
  EXPECT_THAT(processed.rewards, ElementsAre(0.5, -0.5));
  EXPECT_THROW(read_processed_rewards(
                   {.head = {{"raw_rewards", {1}}, {"rewards", {0.5, 1}}}, .columns = {}}, 2),
               net::FrameError);
}

}  // namespace
}  // namespace slime::plugin
