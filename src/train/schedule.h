#pragma once

/// Training schedule of a batch: the samples of each step, micro-batch and rank; "pack first,
/// distribute second" (spec section 12). A pure function of lengths; every rank computes the same
/// answer.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/flops.h"

namespace slime::train {

/// Indices of samples, or of samples inside one rank's list: see the user.
using Indices = std::vector<int64_t>;

struct BatchingConfig {
  int64_t global_batch_size = 1;  // rollout executions of a training step
  int64_t micro_batch_size = 1;   // samples, when not dynamic
  bool use_dynamic_batch_size = false;
  int64_t max_tokens_per_gpu = 0;  // of a micro-batch, when dynamic
  bool balance_data = false;       // ranks get equal work, by FLOPs
  bool balance_by_flops = false;   // micro-batches too; implies balance_data, needs dynamic
  int64_t dp = 1;
  /// Of interleaved pipeline stages: make_schedule() gives each rank a multiple of so many. Pairs, and what
  /// is packed by prefixes (micro_batch.h), are in no groups; pipelines do not need them.
  int64_t micro_batch_group = 1;
};

/// One entry per data-parallel rank in the outer vectors.
struct Schedule {
  std::vector<Indices> samples;  // of the batch, in the order the rank trains them
  std::vector<std::vector<Indices>> micro_batches;  // positions in the rank's list
  std::vector<int64_t> num_micro_batches;           // per training step, equal on all ranks
  std::vector<int64_t> global_batch_sizes;          // rollout executions, per training step
};

/// Throws ConfigError when there are fewer executions than one step needs, fewer samples than
/// ranks, or micro-batches that do not divide over ranks and groups.
Schedule make_schedule(std::span<const int64_t> total_lengths, std::span<const int64_t> rollout_ids,
                       const BatchingConfig& config, const FlopsModel& flops);

/// Samples of each training step, in the order of their executions; executions beyond the last full
/// step are dropped.
std::vector<Indices> split_into_steps(std::span<const int64_t> rollout_ids,
                                      int64_t global_batch_size);

// ---- Pieces, each a station of spec 12.2 to 12.4 ----

/// First fit in order; a length above the capacity gets a bin of its own.
std::vector<Indices> first_fit(std::span<const int64_t> lengths, int64_t capacity);
/// Splits the fullest bins until there are `target`, or only singletons.
std::vector<Indices> expand_bins(std::vector<Indices> bins, std::span<const int64_t> lengths,
                                 int64_t target);

}  // namespace slime::train
