#pragma once

/// The fields of a TrainSample, listed once: how it is made of a Sample (train_batch.cpp), its frame
/// (share_frame.cpp) and what batches of users' functions keep (loop/batch_functions.cpp) derive from this
/// list. A new field is a member in train_batch.h and a line here.

#include <string_view>

#include "train/train_batch.h"

namespace slime::train {

struct TakenField {
  std::string_view name;
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
  fn(TakenField{"prompt length"}, from.prompt_length, to.prompt_length);
  fn(TakenField{"media", false, kStaysWithTokens}, from.media, to.media);
  fn(TakenField{"loss mask"}, from.loss_mask, to.loss_mask);
  fn(TakenField{"rollout log-probs", kPerToken}, from.log_probs, to.rollout_log_probs);
  fn(TakenField{"teacher log-probs", kPerToken}, from.teacher_log_probs, to.teacher_log_probs);
  fn(TakenField{"versions", false, kStaysWithTokens}, from.versions, to.versions);
  fn(TakenField{"top-p ids", false, kStaysWithTokens}, from.top_p_ids, to.top_p_ids);
  fn(TakenField{"top-p offsets", false, kStaysWithTokens}, from.top_p_offsets, to.top_p_offsets);
  fn(TakenField{"experts", false, kStaysWithTokens}, from.routed_experts, to.routed_experts);
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
}

}  // namespace slime::train
