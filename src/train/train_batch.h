#pragma once

/// The record a training phase works on: the samples of one rollout step, flattened, with
/// everything that depends on the step as a whole already computed (spec sections 2 and 3). Pure
/// data, no tensors.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
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
  std::vector<MediaSpan> media;          // as in Sample
  std::vector<uint8_t> loss_mask;        // per response token
  std::vector<float> rollout_log_probs;  // per response token, of the engine; empty: not known
  std::vector<float> teacher_log_probs;  // per response token, of a teacher elsewhere; empty: none
  std::vector<VersionRun> versions;      // of the response's tokens, as in Sample
  std::vector<TokenId> top_p_ids;        // as in Sample
  std::vector<int64_t> top_p_offsets;
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

struct TrainBatch {
  std::vector<TrainSample> samples;  // in the order of the groups
  /// Only the log-probs of its responses are wanted: nothing is trained, nothing counts as a step.
  bool is_scored_only = false;

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

/// Pairs of preferred and rejected responses: each group is one pair and one rollout execution.
/// Throws ConfigError for groups of another size and for responses without a trained token.
TrainBatch make_preference_batch(std::span<const Group> groups);

}  // namespace slime::train
