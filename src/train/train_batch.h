#pragma once

/// The record a training phase works on: the samples of one rollout step, flattened, with
/// everything that depends on the step as a whole already computed (spec sections 2 and 3). Pure
/// data, no tensors.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algo/overlong_penalty.h"
#include "algo/reward_normalization.h"
#include "core/sample.h"

namespace slime::train {

struct TrainSample {
  int64_t ordinal = 0;  // of the Sample
  int64_t group = 0;
  int64_t rollout_id = 0;       // samples of one rollout execution share it
  std::vector<TokenId> tokens;  // prompt and response
  int64_t prompt_length = 0;
  std::vector<TokenId> targets;    // per response token, scored in its place; empty: the tokens
  std::vector<MediaSpan> media;    // as in Sample
  std::vector<uint8_t> loss_mask;  // per response token
  std::vector<float> rollout_log_probs;  // per response token, of the engine; empty: not known
  std::vector<float> teacher_log_probs;  // per response token, of a teacher elsewhere; empty: none
  std::vector<VersionRun> versions;      // of the response's tokens, as in Sample
  std::vector<TokenId> top_p_ids;        // as in Sample
  std::vector<int64_t> top_p_offsets;
  std::vector<float> top_p_log_probs;
  std::vector<TokenId> topk_ids;  // as in Sample
  std::vector<float> topk_log_probs;
  std::vector<int16_t> routed_experts;  // as in Sample
  double reward = 0;                    // after group normalisation
  double raw_reward = 0;
  int64_t rollout_mask_total = 0;  // trained tokens of the whole rollout execution
  int64_t rollout_samples = 1;     // samples of the whole rollout execution
  bool truncated = false;
  std::string source_name;

  int64_t response_length() const { return static_cast<int64_t>(loss_mask.size()); }
  int64_t total_length() const { return static_cast<int64_t>(tokens.size()); }
};

// The fields of a TrainSample, listed once: how it is made of a Sample, its frame (share_frame.cpp) and what
// batches of users' functions have of it (plugin/batch_functions.cpp) derive from these lists.

struct TakenField {
  std::string_view name;      // in dictionaries of batches
  bool is_per_token = false;  // a list with an entry for each response token, or an empty one
  /// In no dictionary of a batch: where a user's function made one, it stays with the tokens that it is of.
  bool stays_with_tokens = false;
};

/// Calls fn(TakenField, member of `from`, member of `to`) for what a TrainSample takes from its Sample as
/// it is. Each of them const or not.
template <typename SomeSample, typename SomeTrainSample, typename Fn>
void each_taken_field(SomeSample& from, SomeTrainSample& to, const Fn& fn) {
  constexpr bool kPerToken = true, kStaysWithTokens = true;
  fn(TakenField{"index"}, from.ordinal, to.ordinal);
  fn(TakenField{"group"}, from.group, to.group);
  fn(TakenField{"tokens"}, from.tokens, to.tokens);
  fn(TakenField{"prompt_length"}, from.prompt_length, to.prompt_length);
  fn(TakenField{"media", false, kStaysWithTokens}, from.media, to.media);
  fn(TakenField{"loss_mask"}, from.loss_mask, to.loss_mask);
  fn(TakenField{"rollout_log_probs", kPerToken}, from.log_probs, to.rollout_log_probs);
  fn(TakenField{"teacher_log_probs", kPerToken}, from.teacher_log_probs, to.teacher_log_probs);
  fn(TakenField{"weight_versions", false, kStaysWithTokens}, from.versions, to.versions);
  fn(TakenField{"top_p_ids", false, kStaysWithTokens}, from.top_p_ids, to.top_p_ids);
  fn(TakenField{"top_p_offsets", false, kStaysWithTokens}, from.top_p_offsets, to.top_p_offsets);
  fn(TakenField{"top_p_log_probs", false, kStaysWithTokens}, from.top_p_log_probs,
     to.top_p_log_probs);
  fn(TakenField{"topk_ids", false, kStaysWithTokens}, from.topk_ids, to.topk_ids);
  fn(TakenField{"topk_log_probs", false, kStaysWithTokens}, from.topk_log_probs, to.topk_log_probs);
  fn(TakenField{"routed_experts", false, kStaysWithTokens}, from.routed_experts, to.routed_experts);
}

/// Calls fn(member) for all of them, tokens before media.
template <typename SomeTrainSample, typename Fn>
void each_field(SomeTrainSample& sample, const Fn& fn) {
  static const Sample kNone;
  each_taken_field(kNone, sample,
                   [&fn](const TakenField&, const auto&, auto& member) { fn(member); });
  fn(sample.rollout_id);
  fn(sample.reward);
  fn(sample.raw_reward);
  fn(sample.rollout_mask_total);
  fn(sample.rollout_samples);
  fn(sample.truncated);
  fn(sample.source_name);
  fn(sample.targets);
}

struct TrainBatch {
  std::vector<TrainSample> samples;  // in the order of the groups
  /// Only the log-probs of its responses are wanted: nothing is trained, nothing counts as a step.
  bool is_scored_only = false;
  /// Of the weights that are trained, as the engine calls them; unset: of the newest tokens.
  std::optional<WeightVersion> version = {};

  std::vector<int64_t> total_lengths() const;
  std::vector<int64_t> rollout_ids() const;
  /// Sets rollout_samples of each sample, from the rollout ids.
  void count_executions();
};

struct TrainBatchConfig {
  algo::RewardNormalization rewards = algo::RewardNormalization::kMeanAndStd;
  std::string reward_key = {};                         // empty: the reward is a number
  std::optional<algo::OverlongPenalty> overlong = {};  // added before group normalisation
};

/// Samples without explicit rollout id get the smallest integers not in use, in order. A sample
/// marked remove_sample, or one that failed or was aborted without a reward, keeps its index in
/// every denominator but trains nothing. Throws ConfigError, all problems at once, for a mask of
/// the wrong length, version runs that do not add up to the response, a prompt without tokens, a
/// missing reward.
TrainBatch make_train_batch(std::span<const Group> groups, const TrainBatchConfig& config);

/// Supervised samples: no reward, masks as given (spec section 9). Samples without a trained token
/// are an error here: whoever reads the data drops them.
TrainBatch make_supervised_batch(std::span<const Sample> samples);

/// Generated samples that are trained as supervised ones are: no reward is read, and one marked
/// remove_sample, or without a verdict, keeps its index in every denominator but trains nothing.
TrainBatch make_imitation_batch(std::span<const Group> groups);

/// Pairs of preferred and rejected responses: each group is one pair and one rollout execution.
/// Throws ConfigError for groups of another size and for responses without a trained token.
TrainBatch make_preference_batch(std::span<const Group> groups);

}  // namespace slime::train
