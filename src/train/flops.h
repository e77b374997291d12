#pragma once

/// Floating-point operations of a model, counted as the original counts them (spec section 13):
/// causal half of attention in both products, three MLP matrices, no embedding. Used to balance
/// work and to report TFLOP/s.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/config.h"

namespace slime::train {

struct FlopsModel {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_dense_layers = 0;
  int64_t num_moe_layers = 0;
  int64_t moe_intermediate_size = 0;  // of the experts a token visits, shared ones included
  /// Multi-head latent attention; q_rank and kv_rank 0 mean full projections.
  struct Latent {
    int64_t q_rank = 0;
    int64_t kv_rank = 0;
    int64_t qk_dim = 0;
    int64_t rotary_dim = 0;
    int64_t value_dim = 0;
  };
  std::optional<Latent> latent;
};

FlopsModel flops_model_of(const model::ModelConfig& config);

/// Of a forward pass over these sequences. A training step takes three times that.
double forward_flops(const FlopsModel& model, std::span<const int64_t> lengths);

}  // namespace slime::train
