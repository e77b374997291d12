#pragma once

/// Share of a batch that one data-parallel rank trains: "pack first, distribute second" (spec
/// section 12). Rank 0 divides the batch and sends each of its peers a share; only the samples a
/// rank trains travel to it.
///
///   step of 4 samples of 5, 9, 4, 8 tokens, budget 12, two ranks: micro-batches {0, 2} {1} {3},
///   split to a multiple of the ranks: {0} {1} {3} {2}; rank 0 trains {0} {3}, rank 1 {1} {2}

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/micro_batch.h"

namespace slime::train {

struct StepShare {
  std::vector<Indices> micro_batches;  // of BatchShare::batch; may be empty
  int64_t num_executions = 0;          // G: of all ranks
  double denominator = 1;              // of loss, gradient and metrics: of all ranks
  int64_t num_micro_batches = 1;       // of all ranks: those with a response, at least one
  int64_t num_predictions = 1;         // of a draft layer: of all ranks, at least one
  bool operator==(const StepShare&) const = default;
};

struct BatchShare {
  TrainBatch batch;       // the samples of this rank
  Indices batch_indices;  // where each of them is in the batch that was divided
  std::vector<StepShare> steps;
};

/// One share per rank, options.batching.dp of them. Samples beyond the last full step are in none.
/// Throws ConfigError as make_schedule does.
std::vector<BatchShare> divide(const TrainBatch& batch, const PlanOptions& options,
                               const FlopsModel& flops);

/// The training steps of a share, with the counts of all ranks.
std::vector<StepPlan> plan_share(const BatchShare& share, const PlanOptions& given);

/// The bytes of a frame, and back. Throws BugError for bytes that are no share.
std::string to_frame(const BatchShare& share);
BatchShare share_from_frame(std::string_view bytes);

}  // namespace slime::train
