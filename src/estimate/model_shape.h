#pragma once

/// What a plan needs to know of a model: counts, from its config.json alone. No weight is read and
/// none is made.

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace slime::estimate {

/// One block. Parameters by who holds them.
struct BlockShape {
  int64_t whole = 0;    // on every tensor-parallel rank: norms, biases, routers
  int64_t sliced = 0;   // divided among tensor-parallel ranks: attention, dense and shared experts
  int64_t experts = 0;  // of all routed experts: divided among ep x etp ranks
  int64_t dispatched_numbers = 0;  // per token, to experts and back each: K x hidden; 0 without

  /// Of a forward pass, per token: in routed experts, and in everything else; and per pair of a
  /// token and one that it attends to.
  double expert_flops = 0;
  double flops = 0;
  double pair_flops = 0;

  // Numbers per token, as model::Costs.
  int64_t saved = 0;
  int64_t saved_selective = 0;
  int64_t saved_float32 = 0;
  int64_t gradients = 0;

  int64_t cache_numbers = 0;  // keys and values of a token
  int64_t window = 0;         // that its attention looks at; 0: all tokens
  int64_t state_bytes = 0;    // of a request

  int64_t parameters() const { return whole + sliced + experts; }
};

struct ModelShape {
  std::string model_type;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t embedding = 0;  // parameters
  int64_t head = 0;       // 0 where it is the embedding
  double head_flops = 0;  // per token, forward
  std::vector<BlockShape> blocks;

  int64_t parameters() const;
  /// Those that a token's forward pass multiplies with.
  int64_t active_parameters(const model::ModelConfig& config) const;
};

/// Throws ConfigError for a model type that is not known.
ModelShape shape_of(const model::ModelConfig& config);

}  // namespace slime::estimate
