#pragma once

/// Costs of a layer on a machine, stated by the layer itself and nowhere else. The memory plan, the
/// count of operations, the engine's cache and `slime inspect` read sums of these.
///
/// Counts are of whole tensors: a tensor-parallel rank holds and computes its slice of what is
/// sliced. Numbers of activations are in the precision of the activations.

#include <algorithm>
#include <cstdint>
#include <string>

namespace slime::model {

struct Costs {
  int64_t parameters = 0;

  /// Floating-point operations of a forward pass: per token, as the original reports them (the
  /// attention's output projection counts as hidden x hidden, train/flops.h), and per pair of a
  /// token and one that it attends to.
  int64_t flops_per_token = 0;
  int64_t flops_per_pair = 0;

  /// Numbers per token that the backward pass reads: nothing computed again, and selectively.
  int64_t saved = 0;
  int64_t saved_selective = 0;
  /// Statistics among them that are float32 whatever the precision.
  int64_t saved_float32 = 0;
  /// Numbers per token of the gradients that are alive together where they take most.
  int64_t gradients = 0;
  /// Numbers per token on the way through the layer without gradients.
  int64_t passing = 0;

  /// Of layers that run one after another.
  Costs operator+(const Costs& next) const {
    return {parameters + next.parameters,           flops_per_token + next.flops_per_token,
            flops_per_pair + next.flops_per_pair,   saved + next.saved,
            saved_selective + next.saved_selective, saved_float32 + next.saved_float32,
            std::max(gradients, next.gradients),    passing + next.passing};
  }
};

/// What the engine keeps for a mixer: keys and values of each token in pages, or a state of each
/// request, whatever its length.
struct CacheSpec {
  int64_t heads = 0;             // key heads; 0 without keys and values
  int64_t queries_per_head = 0;  // query heads that read one key head
  int64_t key_size = 0;          // numbers of one head and token
  int64_t value_size = 0;        // 0 where values are a part of the keys
  int64_t state_bytes = 0;       // of one request
  int64_t index_size = 0;        // float32 numbers of a token for an indexer; layers may differ

  int64_t numbers_per_token() const { return heads * (key_size + value_size); }
  bool operator==(const CacheSpec&) const = default;
};

/// One block of a network: its norms, its mixer and its feed-forward layer.
struct BlockNeeds {
  std::string mixer;         // "32 query, 8 key-value, size 128, q/k norm"
  std::string feed_forward;  // "feed-forward 9728"
  Costs costs;
  CacheSpec cache;
};

}  // namespace slime::model
