#pragma once

/// Workload of one step of a run: what is generated and what is trained.

#include <cstdint>

#include "model/network.h"

namespace slime::estimate {

inline constexpr double kElementBytes = 2;  // of a weight or an activation: bfloat16
/// On devices that are not there: tensors without memory, computed as on a GPU.
inline const model::Precision kPlannedPrecision{
    .weights = at::kBFloat16, .activations = at::kBFloat16, .device = at::kMeta};

struct Workload {
  int64_t prompts = 32;  // of a step
  int64_t samples = 8;   // of each
  int64_t prompt_tokens = 512;
  int64_t response_tokens = 1024;      // in the mean
  int64_t micro_batch_tokens = 16384;  // of a context-parallel rank, at most
  model::Recompute recompute = model::Recompute::kFull;
  bool optimizer_on_host = false;
  bool has_reference = false;
  bool orders_backward =
      false;  // attention's gradients in one order (kernels/gpu/ordered_levels.h)

  /// Rows of the trainer: the samples of a prompt share its rows.
  int64_t rows() const { return prompts * (prompt_tokens + samples * response_tokens); }
  /// Pairs of a row and one that it attends to.
  double pairs() const {
    const auto prompt = static_cast<double>(prompt_tokens);
    const auto response = static_cast<double>(response_tokens);
    return static_cast<double>(prompts) *
           (prompt * prompt / 2 +
            static_cast<double>(samples) * response * (prompt + response / 2));
  }
};

}  // namespace slime::estimate
