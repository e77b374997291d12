#include "rollout/sample_growth.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/version_runs.h"
#include "rollout/verdict.h"

namespace slime::rollout {
namespace {

engine::GenerateUpdate sampled(std::vector<TokenId> ids, WeightVersion version) {
  engine::GenerateUpdate update;
  update.output_ids = std::move(ids);
  for (const TokenId id : update.output_ids) {
    update.output_log_probs.push_back(-0.1F * static_cast<float>(id));
    update.top_p_ids.insert(update.top_p_ids.end(), {id, id + 1});
    update.top_p_counts.push_back(2);
    update.routed_experts.insert(update.routed_experts.end(), {1, static_cast<int16_t>(id)});
  }
  update.versions = {{version, static_cast<int64_t>(update.output_ids.size())}};
  update.finish = engine::FinishReason{.kind = engine::FinishReason::Kind::kAbort};
  return update;
}

Sample prompt_of_two() {
  Sample sample;
  sample.tokens = {5, 6};
  sample.prompt_length = 2;
  return sample;
}

/// With the sampler's log-probs of the kept ids, and its three likeliest.
engine::GenerateUpdate with_sampler(engine::GenerateUpdate update) {
  for (const TokenId id : update.top_p_ids)
    update.top_p_log_probs.push_back(-0.01F * static_cast<float>(id));
  for (const TokenId id : update.output_ids)
    update.output_top.push_back({{-0.5F, id}, {-1.5F, id + 1}, {-2.5F, id + 2}});
  return update;
}

TEST(CutResponse, GivesBackWhatIsKnownOfTheSampler) {
  Sample sample = prompt_of_two();
  sample.routed_experts = {0, 5};  // of the prompt's first token
  append_generated(sample, with_sampler(sampled({10, 11}, 3)));
  const Sample before = sample;
  EXPECT_EQ(sample.topk(), 3);
  EXPECT_EQ(sample.topk_ids, (std::vector<TokenId>{10, 11, 12, 11, 12, 13}));
  EXPECT_EQ(sample.top_p_log_probs.size(), 4U);
  append_generated(sample, with_sampler(sampled({12, 13}, 4)));
  cut_response(sample, 2);
  EXPECT_EQ(to_json(sample), to_json(before));
  EXPECT_EQ(sample.topk_log_probs, before.topk_log_probs);
  EXPECT_EQ(sample.top_p_log_probs, before.top_p_log_probs);
  cut_response(sample, 0);
  EXPECT_TRUE(sample.topk_ids.empty());
  EXPECT_TRUE(sample.topk_log_probs.empty());
  EXPECT_TRUE(sample.top_p_log_probs.empty());
}

TEST(AppendGenerated, DraftsOfSeveralCallsAddUpAndGoWithTheResponse) {
  Sample sample = prompt_of_two();
  sample.routed_experts = {0, 5};
  auto first = sampled({10, 11}, 3), second = sampled({12}, 4);
  first.drafts = {.num_drafted = 4, .num_kept = 1, .num_steps = 1};
  second.drafts = {.num_drafted = 2, .num_kept = 0, .num_steps = 1};
  append_generated(sample, first);
  append_generated(sample, second);
  EXPECT_EQ(sample.drafts, (DraftCounts{.num_drafted = 6, .num_kept = 1, .num_steps = 2}));
  EXPECT_EQ(sample.drafts.num_tokens(), sample.response_length());
  Group group{.samples = {sample}};
  forget_response(group);
  EXPECT_EQ(group.samples[0].drafts, DraftCounts{});
}

TEST(AppendGenerated, WhatIsKnownOfTheSamplerIsKnownOfAllTokensOrOfNone) {
  Sample sample = prompt_of_two();
  sample.routed_experts = {0, 5};
  append_generated(sample, with_sampler(sampled({10, 11}, 3)));
  auto without_best = with_sampler(sampled({12}, 3));
  without_best.output_top.clear();
  EXPECT_THROW(append_generated(sample, without_best), BugError);
  Sample other = prompt_of_two();
  other.routed_experts = {0, 5};
  append_generated(other, with_sampler(sampled({10, 11}, 3)));
  auto without_log_probs = with_sampler(sampled({12}, 3));
  without_log_probs.top_p_log_probs.clear();
  EXPECT_THROW(append_generated(other, without_log_probs), BugError);
}

TEST(CutResponse, GivesBackWhatWasSampledLast) {
  Sample sample = prompt_of_two();
  sample.routed_experts = {0, 5};  // of the prompt's first token
  append_generated(sample, sampled({10, 11}, 3));
  sample.loss_mask = {0, 0};
  append_generated(sample, sampled({12}, 3));
  const Sample before = sample;
  append_generated(sample, sampled({13, 14}, 3));
  append_generated(sample, sampled({15}, 4));
  sample.status = Status::kFailed;
  sample.failure = "reward: no answer";
  sample.reward = 1.0;
  cut_response(sample, 3);
  EXPECT_EQ(to_json(sample), to_json(before));
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{3, 3}}));
  EXPECT_EQ(sample.routed_experts, (std::vector<int16_t>{0, 5, 1, 10, 1, 11, 1, 12}));
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{0, 0, 1}));
}

/// Two tokens of version 3, then three of a tool.
Sample with_a_tool_answer() {
  Sample sample = prompt_of_two();
  auto update = sampled({10, 11}, 3);
  update.top_p_ids.clear();
  update.top_p_counts.clear();
  update.routed_experts.clear();
  append_generated(sample, update);
  sample.tokens.insert(sample.tokens.end(), {20, 21, 22});
  sample.log_probs.resize(5, 0.0F);
  sample.loss_mask = {1, 1, 0, 0, 0};
  return sample;
}

engine::GenerateUpdate sampled_plainly(TokenId id, WeightVersion version) {
  auto update = sampled({id}, version);
  update.top_p_ids.clear();
  update.top_p_counts.clear();
  update.routed_experts.clear();
  return update;
}

TEST(AppendGenerated, TokensUnderAGrammarAreMarkedAndHaveTheLogProbsThatTrainingComputes) {
  Sample sample = with_a_tool_answer();
  auto bound = sampled_plainly(12, 3);
  bound.output_ids = {12, 13, 14};
  bound.output_log_probs = {-1, -0.25F, 0};
  bound.output_free_log_probs = {-1, -2, -3};
  bound.num_constrained = 2;
  append_generated(sample, bound);
  EXPECT_EQ(sample.constrained, (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(std::vector<float>(sample.log_probs.end() - 3, sample.log_probs.end()),
            (std::vector<float>{-1, -2, -3}));
  append_generated(sample, sampled_plainly(15, 3));
  EXPECT_EQ(sample.constrained.back(), 0);
  cut_response(sample, 7);
  EXPECT_EQ(sample.constrained, (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 1}));
}

TEST(AppendGenerated, TokensUnderAGrammarWithoutThoseLogProbsAreABug) {
  Sample sample = prompt_of_two();
  auto bound = sampled_plainly(12, 3);
  bound.num_constrained = 1;
  EXPECT_THROW(append_generated(sample, bound), BugError);
}

TEST(AppendGenerated, VersionRunsCoverToolTokensToo) {
  Sample sample = with_a_tool_answer();
  append_generated(sample, sampled_plainly(12, 3));
  append_generated(sample, sampled_plainly(13, 4));
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{3, 2}, {kNoVersion, 3}, {3, 1}, {4, 1}}));
  EXPECT_EQ(num_tokens(sample.versions), sample.response_length());
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{1, 1, 0, 0, 0, 1, 1}));
}

TEST(CutResponse, CountsToolTokensAmongTheVersions) {
  Sample sample = with_a_tool_answer();
  append_generated(sample, sampled_plainly(12, 4));
  cut_response(sample, 3);
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{3, 2}, {kNoVersion, 1}}));
}

TEST(AppendGenerated, TokensOfUnknownVersionKeepTheirPlace) {
  Sample sample = prompt_of_two();
  auto unknown = sampled_plainly(10, 0);
  unknown.versions.clear();
  append_generated(sample, unknown);
  EXPECT_TRUE(sample.versions.empty());
  append_generated(sample, sampled_plainly(11, 4));
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{kNoVersion, 1}, {4, 1}}));
  auto wrong = sampled_plainly(12, 4);
  wrong.versions = {{4, 2}};
  EXPECT_THROW(append_generated(sample, wrong), BugError) << "two versions of one token";
}

TEST(AppendGenerated, TopPIdsAreOfAllTokensOrOfNone) {
  Sample sample = prompt_of_two();
  sample.routed_experts = {0, 5};  // of the prompt's first token
  append_generated(sample, sampled({10, 11}, 3));
  EXPECT_THROW(append_generated(sample, sampled_plainly(12, 3)), BugError);
  Sample other = prompt_of_two();
  append_generated(other, sampled_plainly(10, 3));
  EXPECT_THROW(append_generated(other, sampled({11}, 3)), BugError);
}

TEST(CutResponse, ToNothingLeavesThePrompt) {
  Sample sample = prompt_of_two();
  sample.routed_experts = {0, 5};  // of the prompt's first token
  append_generated(sample, sampled({10, 11}, 3));
  cut_response(sample, 0);
  EXPECT_EQ(sample.tokens, (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(sample.log_probs.empty());
  EXPECT_TRUE(sample.versions.empty());
  EXPECT_TRUE(sample.top_p_ids.empty());
  EXPECT_TRUE(sample.routed_experts.empty());
  EXPECT_EQ(sample.status, Status::kAborted);
}

}  // namespace
}  // namespace slime::rollout
