#pragma once

/// The samples of a training step, split into micro-batches and packed: what the forward passes of
/// a step have in common.
///
/// Dimensions: R responses and T response tokens of one micro-batch, as in algo/packed.h; U rows of
/// its packed batch, L of them this rank's; Y layers, K experts that a row visits in each.

#include <vector>

#include "algo/loss.h"
#include "core/tensor.h"
#include "kernels/linear_logprob.h"
#include "model/network.h"
#include "train/packing.h"
#include "train/schedule.h"
#include "train/train_batch.h"

namespace slime::train {

struct MicroBatch {
  Indices samples;  // of the TrainBatch; R of them
  PackedBatch packed;
  Tensor starts;             // int64 [R + 1]
  Tensor trained_T;          // bool
  kernels::KeptTokens kept;  // nucleus of each response token; undefined: no replay
  /// The sampler's tokens that score centering looks at, of each response token, and their log-probs there,
  /// flat; undefined: nothing is centered.
  kernels::KeptTokens centered;
  Tensor sampler_A;
  Tensor weight_T;  // what each token counts in a sum: algo::token_weights
  /// int16 [Y, L, K]: whom the rows visited in the pass for old log-probs, in this stage's layers;
  /// undefined: nobody recorded it. What packed.experts_UW says comes from the engine.
  Tensor visited_YLK;
  bool attends_in_pages = false;  // model::TreeAttention::attend_in_pages()
  bool orders_backward = false;   // model::TreeAttention::order_backward()

  bool has_response() const { return trained_T.size(0) > 0; }
};

struct StepPlan {
  std::vector<MicroBatch> micro_batches;
  int64_t num_executions = 0;  // G: rollout executions of the step
  double denominator = 1;      // of loss, gradient and metrics: G, or trained tokens
  int64_t num_micro_batches =
      1;  // of all ranks, those without a response left out: none computes them
  int64_t num_predictions =
      1;  // of a draft layer, of all ranks (train/draft_training.h); at least one
};

struct PlanOptions {
  BatchingConfig batching;
  PackingOptions packing;
  algo::Reduction reduction = algo::Reduction::kPerRollout;
  bool replays_top_p = false;  // every sample has its nucleus, and log-probs are taken in it
  /// Every sample has the sampler's log-probs of so many of its likeliest ids at each token, and with
  /// replays_top_p of its nucleus instead; 0: scores are not centered.
  int64_t centers_scores = 0;
  /// Every sample that trains brings the engine's choices of experts, and they are visited. Null: it
  /// does not matter.
  const model::ModelConfig* replays_experts_of = nullptr;
  /// Longer samples rotate by the tables' rows from rotary_offset on; 0: all alike. `scores_as_sampled`:
  /// what was sampled before a sample grew so long is scored by the rows that drew it.
  int64_t rotary_switch = 0;
  int64_t rotary_offset = 0;
  bool scores_as_sampled = false;
  bool attends_in_pages = false;
  bool orders_backward = false;
  bool keeps_pairs = false;             // samples 2i and 2i + 1 share a micro-batch: preferences
  bool separates_zero_rewards = false;  // samples with reward 0 get micro-batches of their own
  at::ScalarType dtype = at::kFloat;    // of weight_T: float32 or float64
};

/// The same without prefix sharing where sharing among these samples would cost more than it saves.
PlanOptions with_sharing_that_pays(std::span<const TrainSample> samples, PlanOptions options);

/// Which samples share a micro-batch: [training step][rank][micro-batch]. One rank with prefix
/// sharing and dynamic batches keeps siblings together, and its token budget counts what is
/// computed; pairs of preferences stay together; otherwise micro-batches are those of
/// make_schedule. A rank may have none. Throws ConfigError as make_schedule does.
std::vector<std::vector<std::vector<Indices>>> cut_steps(const TrainBatch& batch,
                                                         const PlanOptions& options,
                                                         const FlopsModel& flops);

/// A step of these micro-batches, packed. The counts are those of the samples in them.
StepPlan make_step(std::span<const TrainSample> samples, std::vector<Indices> micro_batches,
                   const PlanOptions& options);

/// The training steps of a batch when there is one rank; several: train/share.h.
std::vector<StepPlan> plan_steps(const TrainBatch& batch, const PlanOptions& given,
                                 const FlopsModel& flops);

/// All samples as one step, whatever G is; for passes that only look.
StepPlan plan_pass(std::span<const TrainSample> samples, const PlanOptions& given);

/// One number per response token of each sample of a batch, filled micro-batch by micro-batch.
class TokenColumn {
 public:
  explicit TokenColumn(std::size_t num_samples) : per_sample_(num_samples) {}

  /// x_T: the column of a micro-batch.
  void put(const MicroBatch& micro_batch, const Tensor& x_T);
  void put(std::size_t sample, Tensor x) { per_sample_[sample] = std::move(x); }
  /// The column of these samples, end to end; undefined when one of them has none.
  Tensor gather(const Indices& samples) const;
  /// The same with zeros for samples that have none, whose lengths `starts` says; undefined when all
  /// of them have none.
  Tensor gather_known(const MicroBatch& micro_batch) const;
  /// bool, of the same tokens: whether their sample has the column.
  Tensor known(const MicroBatch& micro_batch) const;
  const Tensor& of(std::size_t sample) const { return per_sample_[sample]; }

 private:
  std::vector<Tensor> per_sample_;
};

/// Prompt and response of each sample of these steps, in tokens.
std::vector<int64_t> lengths_of(const TrainBatch& batch, std::span<const StepPlan> plans);

}  // namespace slime::train
