#pragma once

/// Seconds that engines, trainers and rewards take: the rates that `slime simulate` runs on.

#include <algorithm>
#include <cstdint>

namespace slime::estimate {

struct CostModel {
  // One engine, per decoding step.
  double step = 0.008;              // weights are read
  double step_per_sequence = 2e-5;  // each sequence that draws
  double step_per_token = 0;        // each token of keys and values that is read
  double prefill_per_token = 2e-5;
  double update = 0.05;  // engines stand still for new weights
  // All trainers together.
  double train = 0.5;  // a step
  double train_per_token = 2e-5;
  double reward = 0.01;

  double decode_step(int64_t num_sequences, int64_t num_cached_tokens) const {
    return std::max(1e-9, step + step_per_sequence * static_cast<double>(num_sequences) +
                              step_per_token * static_cast<double>(num_cached_tokens));
  }
};

}  // namespace slime::estimate
