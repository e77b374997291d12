#include "plugin/read_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/version_runs.h"
#include "net/frame_channel.h"
#include "plugin/sample_record.h"

namespace slime::plugin {
namespace {

using ::testing::HasSubstr;

constexpr SampleLimits kLimits{.vocab_size = 50, .max_tokens = 8, .needs_log_probs = false};

Sample given() {
  Sample sample{.ordinal = 17, .group = 4, .index_in_group = 1, .prompt_length = 2};
  sample.tokens = {12, 7};
  sample.prompt = "2+2=";
  sample.metadata = {{"level", 3}};
  return sample;
}

/// A turn of two tokens, a tool's one, a turn of one.
json::object record() {
  return {{"index", 99},
          {"prompt", "2+2="},
          {"tokens", {12, 7, 42, 43, 5, 2}},
          {"response_length", 4},
          {"response", "yes"},
          {"status", "truncated"},
          {"loss_mask", {1, 1, 0, 1}},
          {"rollout_log_probs", {-0.5, -0.25, 0, -1}},
          {"weight_versions", {"5", "6"}},
          {"metadata", {{"turns", 2}}},
          {"extra", {{"tool_calls", 1}}},
          {"spec_info", {{"spec_verify_ct", 2}, {"spec_draft_token_num", 3}}},
          {"prefix_cache_info", {{"cached_tokens", 2}, {"total_prompt_tokens", 9}}}};
}

Sample made(const json::object& of, SampleLimits limits = kLimits) {
  Sample sample = read_sample(of, {}, given(), limits);
  check_sampled(sample, limits);
  return sample;
}

std::string problem_of(const json::object& of, SampleLimits limits = kLimits) {
  try {
    made(of, limits);
    return "none";
  } catch (const net::FrameError& error) {
    return error.what();
  }
}

json::object with(std::string_view name, json::value value) {
  json::object changed = record();
  changed[name] = std::move(value);
  return changed;
}

TEST(ReadSample, HasWhatTheFunctionSetAndTheOrdinalsThatItWasGiven) {
  const Sample sample = made(record());
  EXPECT_EQ(sample.ordinal, 17);
  EXPECT_EQ(sample.group, 4);
  EXPECT_EQ(sample.index_in_group, 1);
  EXPECT_EQ(sample.prompt_length, 2);
  EXPECT_EQ(sample.tokens, (std::vector<TokenId>{12, 7, 42, 43, 5, 2}));
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{1, 1, 0, 1}));
  EXPECT_EQ(sample.log_probs, (std::vector<float>{-0.5, -0.25, 0, -1}));
  EXPECT_EQ(sample.status, Status::kTruncated);
  EXPECT_EQ(sample.metadata, (json::object{{"turns", 2}}));
  EXPECT_EQ(sample.user_fields, (json::object{{"extra", {{"tool_calls", 1}}}}));
  EXPECT_EQ(sample.cached_tokens, 2);
  EXPECT_EQ(sample.engine_prompt_tokens, 9);
  EXPECT_EQ(sample.drafts, (DraftCounts{.num_drafted = 3, .num_kept = 0, .num_steps = 2}));
  EXPECT_EQ(made(with("custom_rm_path", "my.rm")).custom_rm_path, "my.rm");
  EXPECT_EQ(made(with("train_metadata", {{"a", 1}})).user_fields.at("train_metadata"),
            (json::value{{"a", 1}}));
}

Sample sampled() {
  Sample sample{.ordinal = 17, .group = 4, .index_in_group = 1, .prompt_length = 1};
  sample.tokens = {12, 42, 2};
  sample.media = {{0, 1, std::make_shared<Attachment>(Attachment{.key = 7})}};
  sample.prompt = "2+2=";
  sample.response = "4";
  sample.label = "4";
  sample.metadata = {{"level", 3}};
  sample.custom_rm_path = "my.rm";
  sample.log_probs = {-0.75F, -0.25F};
  sample.loss_mask = {1, 0};
  sample.versions = {{5, 1}, {6, 1}};
  sample.status = Status::kTruncated;
  sample.reward = {{"score", 1}};
  sample.rollout_id = 3;
  sample.remove_sample = true;
  sample.user_fields = {{"train_metadata", {{"a", 1}}}, {"extra", {{"own", 2}}}};
  sample.top_p_ids = {42, 7, 2};
  sample.top_p_offsets = {0, 2, 3};
  sample.top_p_log_probs = {-0.75F, -0.5F, 0};
  sample.topk_ids = {42, 7, 2, 9};
  sample.topk_log_probs = {-0.75F, -1, -0.25F, -2};
  sample.routed_experts = {0, 1, 0, 1};
  sample.engine_prompt_tokens = 9;
  sample.cached_tokens = 4;
  sample.drafts = {.num_drafted = 3, .num_kept = 1, .num_steps = 1};
  sample.generation_seconds = 0.5;
  return sample;
}

TEST(ReadSample, OneThatNobodyTouchedComesBackAsItWas) {
  Columns columns;
  const json::object sent = to_record(sampled(), columns);
  EXPECT_EQ(to_json(read_sample(sent, columns, sampled(), kLimits)), to_json(sampled()));
}

TEST(ReadSample, AbsentFieldsAreAtTheirDefaultsAndOursStay) {
  const Sample back = read_sample({{"tokens", {12, 42}}, {"response_length", 1}, {"index", 99}}, {},
                                  sampled(), kLimits);
  EXPECT_EQ(back.ordinal, 17);
  EXPECT_EQ(back.tokens, (std::vector<TokenId>{12, 42}));
  EXPECT_EQ(back.media, sampled().media) << "its tokens are there";
  EXPECT_TRUE(back.log_probs.empty());
  EXPECT_TRUE(back.reward.is_null());
  EXPECT_TRUE(back.metadata.empty());
  EXPECT_TRUE(back.user_fields.empty());
  EXPECT_TRUE(back.versions.empty()) << "nobody knows who made it";
  EXPECT_TRUE(back.routed_experts.empty());
  EXPECT_EQ(back.status, Status::kPending);
}

TEST(ReadSample, MessagesStayBesideTheTextThatTheyWereRenderedTo) {
  const json::array messages{json::object{{"role", "user"}, {"content", "2+2"}}};
  const Sample sample = made(with("prompt", messages));
  EXPECT_EQ(sample.prompt, "2+2=");
  EXPECT_EQ(sample.user_fields.at("prompt"), json::value(messages));
  Sample without = given();
  without.prompt.clear();
  EXPECT_EQ(read_sample(with("prompt", messages), {}, without, kLimits).prompt,
            json_text(messages));
}

TEST(ReadSample, AWordForEachTurnIsAVersionForEachStretchOfItsTokens) {
  EXPECT_EQ(made(record()).versions, (std::vector<VersionRun>{{5, 2}, {kNoVersion, 1}, {6, 1}}));
  // One word too many: which is whose is not known, and the oldest is the safe one.
  EXPECT_EQ(made(with("weight_versions", {"6", "5", "6"})).versions,
            (std::vector<VersionRun>{{5, 2}, {kNoVersion, 1}, {5, 1}}));
  EXPECT_TRUE(made(with("weight_versions", json::array{"default"})).versions.empty());
}

TEST(ReadSample, VersionsThatTheHostKnowsCount) {
  const json::array runs{json::array{5, 1}, json::array{6, 1}, json::array{-1, 1},
                         json::array{6, 1}};
  EXPECT_EQ(made(with("version_runs", runs)).versions,
            (std::vector<VersionRun>{{5, 1}, {6, 1}, {kNoVersion, 1}, {6, 1}}));
  EXPECT_THAT(problem_of(with("version_runs", json::array{json::array{5, 1}})),
              HasSubstr("another response"));
}

TEST(ReadSample, TokensOfAnEarlierCallKeepTheirVersions) {
  Sample before = given();
  before.tokens = {12, 7, 42, 43};
  before.versions = {{3, 1}, {4, 1}};
  const json::array runs{json::array{-1, 3}, json::array{6, 1}};
  EXPECT_EQ(read_sample(with("version_runs", runs), {}, before, kLimits).versions,
            (std::vector<VersionRun>{{3, 1}, {4, 1}, {kNoVersion, 1}, {6, 1}}));
}

TEST(ReadSample, EachWrongFieldIsNamed) {
  const std::vector<std::pair<json::object, std::string>> cases = {
      {with("tokens", {12, 7, 42, 43, 5, 50}), "Sample.tokens[5] is 50; ids are from 0 to 49"},
      {with("tokens", {12, 7, 42, 43, 5, -1}), "Sample.tokens[5] is -1"},
      {with("tokens", {1, 2, 3, 4, 5, 6, 7, 8, 9}), "has 9 tokens; the model takes 8"},
      {with("tokens", "many"), "Sample.tokens: no list of numbers"},
      {with("tokens", json::object{{"$column", 0}}), "Sample.tokens: "},
      {with("tokens", {12, 7, 42, 43, 5, 3000000000}), "Sample.tokens[5] is 3000000000"},
      {with("custom_rm_path", 3), "Sample.custom_rm_path is 3"},
      {with("tokens", json::array{1.5}), "Sample.tokens: a list of whole numbers has something"},
      {with("response_length", 6), "Sample.response_length is 6 of 6 tokens"},
      {with("response_length", -1), "Sample.response_length is -1 of 6"},
      {with("response_length", "two"), "Sample.response_length is \"two\"; it should be a whole"},
      {with("loss_mask", {1, 1, 0}), "Sample.loss_mask has 3 entries for 4 response tokens"},
      {with("loss_mask", {1, 2, 0, 1}), "neither 0 nor 1"},
      {with("rollout_log_probs", json::array{-1}), "Sample.rollout_log_probs has 1 entries for 4"},
      {with("rollout_log_probs", {-1, -1, 1e300, -1}), "Sample.rollout_log_probs[2] is inf"},
      {with("teacher_log_probs", json::array{-1}), "Sample.teacher_log_probs has 1"},
      {with("status", "fine"), "Sample.status is fine"},
      {with("metadata", 3), "Sample.metadata is 3; it should be a dictionary"},
      {with("remove_sample", "yes"), "Sample.remove_sample is \"yes\"; it should be True or False"},
      {with("rollout_id", "x"), "Sample.rollout_id is \"x\""},
      {with("rollout_top_p_token_offsets", {0, 1}), "should be 5 rising numbers from 0"},
      {with("rollout_top_p_log_probs", json::array{-1}), "has 1 numbers for 0 ids"},
      {with("rollout_topk_token_ids", {1, 2, 3}), "should both be [4, K]; they have 3 and 0"},
      {with("rollout_topk_token_ids", json::array{70}), "rollout_topk_token_ids has 70"},
      {with("rollout_routed_experts", json::object{{"shape", {5, 1, 1}}}), "no list of numbers"},
  };
  for (const auto& [of, expected] : cases) EXPECT_THAT(problem_of(of), HasSubstr(expected));
}

TEST(ReadSample, AResponseWithoutATokenIsNoneUnlessItWasAborted) {
  json::object empty = with("tokens", {12, 7});
  empty["response_length"] = 0;
  empty.erase("loss_mask");
  empty.erase("rollout_log_probs");
  EXPECT_THAT(problem_of(empty), HasSubstr("no response token"));
  empty["status"] = "aborted";
  EXPECT_EQ(made(empty).status, Status::kAborted);
}

TEST(ReadSample, LogProbsAreAskedForWhereTheRunTrainsWithThem) {
  json::object without = record();
  without.erase("rollout_log_probs");
  EXPECT_TRUE(made(without).log_probs.empty());
  EXPECT_THAT(problem_of(without, {.vocab_size = 50, .max_tokens = 8, .needs_log_probs = true}),
              HasSubstr("Sample.rollout_log_probs is missing"));
}

TEST(ReadSample, WhatTheSamplerKnewIsAskedForWhereScoresAreCentered) {
  const SampleLimits head{.vocab_size = 50, .max_tokens = 8, .needs_head = 2};
  EXPECT_THAT(problem_of(record(), head), HasSubstr("append_response_tokens"));
  json::object with_head = record();
  json::array ids, log_probs;
  for (int token = 0; token < 4; ++token) {
    ids.insert(ids.end(), {3, 4});
    log_probs.insert(log_probs.end(), {-0.75, -1});
  }
  with_head["rollout_topk_token_ids"] = ids;
  with_head["rollout_topk_log_probs"] = log_probs;
  EXPECT_EQ(made(with_head).topk(), 2);
  EXPECT_EQ(problem_of(with_head, head), "none");
  log_probs[1] = -0.1;
  with_head["rollout_topk_log_probs"] = log_probs;
  EXPECT_THAT(problem_of(with_head, head),
              HasSubstr("response token 0 was drawn from: it has a mass"));
  const SampleLimits support{.vocab_size = 50, .max_tokens = 8, .needs_support = true};
  EXPECT_THAT(problem_of(record(), support), HasSubstr("rollout_top_p_token_ids"));
}

}  // namespace
}  // namespace slime::plugin
