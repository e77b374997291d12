#include "core/sample.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime {
namespace {

Sample finished_sample() {
  Sample sample;
  sample.ordinal = 17;
  sample.group = 4;
  sample.index_in_group = 1;
  sample.prompt_length = 3;
  sample.tokens = {12, 7, 99, 42, 42, 2};
  sample.prompt = "What is 2 x 3?";
  sample.response = "6 \xc3\xa9";
  sample.label = "6";
  sample.log_probs = {-0.1F, -0.7F, -0.02F};
  sample.loss_mask = {1, 0, 1};
  sample.top_p_ids = {42, 5, 42, 2};
  sample.top_p_offsets = {0, 2, 2, 4};
  sample.top_p_log_probs = {-0.1F, -2.351F, -0.02F, -3.9F};
  sample.topk_ids = {42, 5, 42, 6, 2, 42};
  sample.topk_log_probs = {-0.1F, -2.5F, -0.7F, -0.75F, -0.02F, -4.0F};
  sample.routed_experts = {0, 3, 511, 2, 1, 0, 7, 30000, 0, 3};
  sample.engine_prompt_tokens = 3;
  sample.versions = {{5, 2}, {6, 1}};
  sample.status = Status::kCompleted;
  sample.reward = 1.0;
  sample.metadata = {{"rm_type", "math"}};
  sample.custom_rm_path = "rewards.py:mine";
  return sample;
}

TEST(Sample, SurvivesItsJsonForm) {
  const Sample sample = finished_sample();
  const json::object object = to_json(sample);
  const Sample again = sample_from_json(parse_json(json_text(object), "test").get_object(), "test");
  EXPECT_EQ(to_json(again), object);
  EXPECT_EQ(again.log_probs, sample.log_probs);
  EXPECT_EQ(again.top_p_log_probs, sample.top_p_log_probs);
  EXPECT_EQ(again.topk_ids, sample.topk_ids);
  EXPECT_EQ(again.topk_log_probs, sample.topk_log_probs);
  EXPECT_EQ(again.topk(), 2);
  EXPECT_EQ(again.versions, sample.versions);
  EXPECT_EQ(again.routed_experts, sample.routed_experts);
  EXPECT_EQ(again.response_length(), 3);
  EXPECT_EQ(again.effective_response_length(), 2);
}

TEST(Sample, HasItsDraftsByTheNamesOfTheOriginal) {
  EXPECT_FALSE(to_json(finished_sample()).contains("spec_info"));
  Sample sample = finished_sample();
  sample.drafts = {.num_drafted = 5, .num_kept = 1, .num_steps = 2};
  const json::object object = to_json(sample);
  EXPECT_EQ(object.at("spec_info"), (json::object{{"spec_accept_token_num", 1},
                                                  {"spec_draft_token_num", 5},
                                                  {"spec_verify_ct", 2},
                                                  {"completion_token_num", 3}}));
  EXPECT_EQ(sample_from_json(object, "test").drafts, sample.drafts);
  sample.drafts.num_compared = 3;
  sample.drafts.num_redrawn = 1;
  const json::object verified = to_json(sample);
  EXPECT_EQ(verified.at("spec_info").at("verify_compared_token_num"), 3);
  EXPECT_EQ(verified.at("spec_info").at("verify_redrawn_token_num"), 1);
  EXPECT_EQ(sample_from_json(verified, "test").drafts, sample.drafts);
  const json::object odd{{"spec_verify_ct", -3}, {"spec_accept_token_num", "many"}};
  EXPECT_EQ(draft_counts_from(odd), DraftCounts{});
}

TEST(Sample, HasTheSpansOfItsAttachmentsInJsonWithoutTheirBytes) {
  EXPECT_FALSE(to_json(finished_sample()).contains("media"));
  Sample sample = finished_sample();
  sample.media = {
      {1, 3,
       std::make_shared<Attachment>(Attachment{
           .key = 0xabc, .type = "image/png", .bytes = "pixels", .t = 1, .h = 2, .w = 1})}};
  const json::object object = to_json(sample);
  EXPECT_EQ(json_text(object.at("media")),
            R"([{"begin":1,"end":3,"key":"0000000000000abc","type":"image/png","grid":[1,2,1]}])");
  const Sample again = sample_from_json(object, "test");
  ASSERT_EQ(again.media.size(), 1U);
  EXPECT_EQ(again.media[0].what->key, 0xabcU);
  EXPECT_EQ(again.media[0].what->h, 2);
  EXPECT_EQ(again.media[0].what->bytes, "");
  json::object wrong = object;
  wrong.at("media").as_array()[0].as_object()["end"] = 99;
  EXPECT_THROW(sample_from_json(wrong, "test"), ConfigError);
  wrong.at("media").as_array()[0].as_object()["key"] = "abc";
  EXPECT_THROW(sample_from_json(wrong, "test"), ConfigError);
}

TEST(Sample, NamesTheFieldThatHasTheWrongType) {
  json::object object = to_json(finished_sample());
  object["tokens"] = "12 7 99";
  try {
    sample_from_json(object, "dump.jsonl, line 3");
    FAIL() << "accepted a string for tokens";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "dump.jsonl, line 3: tokens must be a list of whole numbers, not \"12 7 99\"");
  }
}

TEST(Sample, ChoicesOfExpertsAreAlsoReadFromAList) {
  json::object object = to_json(finished_sample());
  object["rollout_routed_experts"] = json::array{1, 2, 3, 4, 5};
  EXPECT_EQ(sample_from_json(object, "x").routed_experts, (std::vector<int16_t>{1, 2, 3, 4, 5}));
  object["rollout_routed_experts"] = json::array{1, 2, 3, 4, 40000};
  EXPECT_THROW(sample_from_json(object, "x"), ConfigError);
  object["rollout_routed_experts"] = json::array{1, 2, 3, 4};
  EXPECT_THROW(sample_from_json(object, "x"), ConfigError) << "five tokens have a row";
  object["rollout_routed_experts"] = "AQA";
  EXPECT_THROW(sample_from_json(object, "x"), ConfigError) << "no base64";
}

TEST(Sample, AMaskOfAnotherLengthIsRefused) {
  json::object object = to_json(finished_sample());
  object["loss_mask"] = json::array{1};
  EXPECT_THROW(sample_from_json(object, "x"), ConfigError);
}

TEST(Sample, ARewardRecordIsReadThroughItsKey) {
  Sample sample = finished_sample();
  sample.reward = {{"score", -1.0}, {"acc", false}};
  EXPECT_EQ(sample.reward_value("score"), -1.0);
  EXPECT_THROW(sample.reward_value(""), ConfigError);
  EXPECT_THROW(sample.reward_value("pred"), ConfigError);
}

}  // namespace
}  // namespace slime
