#pragma once

/// Counts of the weights that a step of generation reads and multiplies with, from which floors are
/// made.

#include <cstdint>

#include "model/network.h"

namespace slime::bench {

struct WeightCounts {
  int64_t always = 0;  // in every step; the embedding only as the output layer
  int64_t expert = 0;  // one expert in all layers that have experts; 0: there are none
  int64_t num_experts = 0, experts_per_token = 0;  // of a layer

  /// Of a token.
  int64_t multiplied() const { return always + experts_per_token * expert; }
  /// Expected in a step of `rows` rows whose router is even.
  double read(int64_t rows) const;
};

/// `num_ranks` tensor-parallel ranks, of which the network is one's.
WeightCounts weight_counts(model::Network& network, int num_ranks = 1);

}  // namespace slime::bench
