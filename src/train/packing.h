#pragma once

/// A micro-batch as the network reads it: sequences end to end, with shared prefixes computed once.
///
/// The n responses of a prompt start with the same tokens, and often so do prompts (chat template,
/// system message). Such runs become one segment that all its continuations attend to: hidden
/// states, and by linearity gradients, are the same numbers as without sharing, for a fraction of
/// the work.
///
///   prompts 5 6 7, responses 8 9 | 8 4
///   sharing: ids 5 6 7 8 | 9 | 4      segments {0,4,-1} {4,5,0} {5,6,0}
///   both sequences are scored at 8 (once, by the row of 7), then at 9 and at 4 (by the row of 8)
///
/// Dimensions: U tokens of the packed batch, S scored rows (U response tokens seen by at least one
/// sequence), T response tokens of all sequences end to end. S <= U, and T > S when responses share
/// tokens.

#include <cstdint>
#include <span>
#include <vector>

#include "core/sample.h"
#include "core/tensor.h"
#include "model/token_batch.h"

namespace slime::train {

/// One sequence: its first prompt_length tokens are given, the others are scored. prompt_length
/// >= 1.
struct Sequence {
  std::span<const TokenId> tokens;
  int64_t prompt_length = 0;
  /// Of the tokens. Those are shared whose keys are the same (core/token_span.h).
  std::span<const MediaSpan> media = {};
  /// Which experts the first tokens are to visit, expert_width numbers each; the others visit whom
  /// they like. Tokens are shared with those that visit the same.
  std::span<const int16_t> experts = {};
  int64_t expert_width = 0;
  /// Position p rotates by row p + rotary_offset of the tables (ModelConfig::rotary_switch()). Tokens are
  /// shared where they rotate alike.
  int64_t rotary_offset = 0;
  /// Its tokens up to position `num_sampled_short` were sampled before it grew beyond the switch, and are
  /// scored so: by rows of its first so many tokens with the offset 0. 0: there are none.
  int64_t num_sampled_short = 0;
  /// What the scored positions are scored for, in the place of their tokens; empty: their tokens.
  std::span<const TokenId> targets = {};

  bool has_short_scores() const { return num_sampled_short >= prompt_length; }
};

struct PackingOptions {
  /// Off for models with recurrent layers, whose state is not a set of rows.
  bool share_prefixes = true;
  /// A run is shared when that saves so many tokens; a segment costs about as much.
  int64_t min_saved_tokens = 16;
  /// What a row costs for each shared run that it attends to, in rows of the network: 0 where attention
  /// knows trees (CPU), more where each run takes attentions of its own (train/level_cost.h).
  double level_cost = 0;
};

struct PackedBatch {
  model::TokenBatch tokens;     // [U]; rows of media are put in by the pass
  std::vector<MediaRun> media;  // of these rows; empty: all are text
  Tensor row_S;                 // int64  row of the packed batch whose hidden state predicts ...
  Tensor target_S;              // int64  ... this token
  /// int64: index into S of each response token, sequences in the order they were given.
  Tensor scored_T;
  /// int64: row of the packed batch of each token of each sequence, prompts included, sequences end to
  /// end in the order they were given.
  Tensor row_L;
  std::vector<int64_t> lengths;  // of the sequences
  /// int16 [U, expert width]: whom each row is to visit, -1 where it likes; undefined: all like.
  Tensor experts_UW;
};

PackedBatch pack(std::span<const Sequence> sequences, const PackingOptions& options);

/// Whether the tokens that need not be computed cost more than the levels of attention that take
/// their place, if all of these sequences were one micro-batch.
bool sharing_pays(std::span<const Sequence> sequences, const PackingOptions& options);

/// Tokens the two sequences start with in common, by their keys, visits of experts included.
int64_t common_prefix(const Sequence& a, const Sequence& b);

/// Micro-batches for one rank that keep sequences with common prefixes together: each sequence in
/// order goes to the bin where it adds the fewest tokens among those that it fits into, else to a
/// new one. The capacity counts shared tokens once. Loss and gradients do not depend on the choice.
std::vector<std::vector<int64_t>> pack_into_bins(std::span<const Sequence> sequences,
                                                 int64_t capacity);

}  // namespace slime::train
