#include "rollout/sample_growth.h"

#include <gtest/gtest.h>

#include "core/version_runs.h"

namespace slime::rollout {
namespace {

engine::GenerateUpdate drawn(std::vector<TokenId> ids, WeightVersion version) {
  engine::GenerateUpdate update;
  update.output_ids = std::move(ids);
  for (const TokenId id : update.output_ids) {
    update.output_log_probs.push_back(-0.1F * static_cast<float>(id));
    update.top_p_ids.insert(update.top_p_ids.end(), {id, id + 1});
    update.top_p_counts.push_back(2);
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

TEST(CutResponse, GivesBackWhatWasDrawnLast) {
  Sample sample = prompt_of_two();
  append_generated(sample, drawn({10, 11}, 3));
  sample.loss_mask = {0, 0};
  append_generated(sample, drawn({12}, 3));
  const Sample before = sample;
  append_generated(sample, drawn({13, 14}, 3));
  append_generated(sample, drawn({15}, 4));
  sample.status = Status::kFailed;
  sample.failure = "reward: no answer";
  sample.reward = 1.0;
  cut_response(sample, 3);
  EXPECT_EQ(to_json(sample), to_json(before));
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{3, 3}}));
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{0, 0, 1}));
}

/// A tool's answer, which brings neither log-probs nor a version.
Segment tool_answer(std::vector<TokenId> ids) {
  Segment segment;
  segment.tokens = std::move(ids);
  segment.is_trained = false;
  return segment;
}

TEST(AppendSegment, VersionRunsCoverToolTokensToo) {
  Sample sample = prompt_of_two();
  append_generated(sample, drawn({10, 11}, 3));
  ASSERT_TRUE(append_segment(sample, tool_answer({20, 21, 22})));
  append_generated(sample, drawn({12}, 3));
  append_generated(sample, drawn({13}, 4));
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{3, 2}, {kNoVersion, 3}, {3, 1}, {4, 1}}));
  EXPECT_EQ(num_tokens(sample.versions), sample.response_length());
}

TEST(CutResponse, CountsToolTokensAmongTheVersions) {
  Sample sample = prompt_of_two();
  append_generated(sample, drawn({10, 11}, 3));
  ASSERT_TRUE(append_segment(sample, tool_answer({20, 21})));
  append_generated(sample, drawn({12}, 4));
  cut_response(sample, 3);
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{3, 2}, {kNoVersion, 1}}));
}

TEST(AppendSegment, TokensOfUnknownVersionKeepTheirPlace) {
  Sample sample = prompt_of_two();
  Segment unknown;
  unknown.tokens = {10, 11};
  unknown.log_probs = std::vector<float>(2, -1.0F);
  ASSERT_TRUE(append_segment(sample, unknown));
  EXPECT_TRUE(sample.versions.empty());
  Segment known = unknown;
  known.versions = {{4, 2}};
  ASSERT_TRUE(append_segment(sample, known));
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{kNoVersion, 2}, {4, 2}}));
  known.versions = {{4, 3}};
  EXPECT_FALSE(append_segment(sample, known)) << "three versions of two tokens";
}

TEST(CutResponse, ToNothingLeavesThePrompt) {
  Sample sample = prompt_of_two();
  append_generated(sample, drawn({10, 11}, 3));
  cut_response(sample, 0);
  EXPECT_EQ(sample.tokens, (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(sample.log_probs.empty());
  EXPECT_TRUE(sample.versions.empty());
  EXPECT_TRUE(sample.top_p_ids.empty());
  EXPECT_EQ(sample.status, Status::kAborted);
}

TEST(CutResponse, KeepsOneRowOfRoutedExpertsForEveryTokenButTheLast) {
  Sample sample = prompt_of_two();
  const RoutingShape two_layers_of_one{.num_layers = 2, .topk = 1};
  Segment segment;
  segment.tokens = {10, 11, 12};
  segment.log_probs = std::vector<float>(3, -1.0F);
  segment.routed_experts = RoutedExperts{.ids = {1, 2, 3, 4, 5, 6, 7, 8}, .first_row = 0};
  ASSERT_TRUE(append_segment(sample, segment, two_layers_of_one));
  cut_response(sample, 1);
  EXPECT_EQ(sample.routed_experts, (std::vector<int32_t>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace slime::rollout
