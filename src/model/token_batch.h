#pragma once

/// Tokens of one forward pass, packed end to end without padding: [T], divided into segments.
///
/// A segment may continue another one: its tokens attend to all tokens of its chain of ancestors
/// and, causally, to themselves. So the prompt of a group is one segment and its n responses are n
/// segments with that parent: the prompt is computed once, forward and backward, whatever n is. A
/// plain packed batch has segments without parents.
///
///   prompt 0..2, two responses          segments = {{0, 3, -1}, {3, 5, 0}, {5, 8, 0}}
///   ids_T       = p p p  a a  b b b
///   rotary row  = 0 1 2  3 4  3 4 5

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "kernels/segments.h"

namespace slime::model {

struct RouterPass;

using kernels::Segment;  // {begin, end, parent}

/// Hidden states that a pass hands out beside its result, for a draft model (model/eagle3.h).
struct HiddenCapture {
  /// Blocks whose inputs are wanted, ascending; the number of blocks: what the last one returns.
  std::vector<int64_t> layers;
  /// The result: [T, layers * H], side by side in that order, before any norm.
  Tensor hidden_TC;
};

struct TokenBatch {
  Tensor ids_T;  // int64, on the model's device
  /// int64: which row of the rotary tables turns it. Text: its position in its own sequence, or that and
  /// an offset. How many keys a token sees is no matter of it.
  Tensor rotary_row_T;
  /// Cover [0, T) in order; the engine's attention does not read them.
  std::vector<Segment> segments;
  /// Choices of experts (model/router_pass.h), of the same rows; null: routers are free and nobody
  /// asks. Outlives the backward of the batch.
  RouterPass* routers = nullptr;
  /// Null: none are wanted, and nothing is computed for it. Of whole models, without gradients, and of all rows:
  /// wanted_R is undefined.
  HiddenCapture* captured = nullptr;
  /// int64: hidden states are wanted of these rows alone, in this order; undefined: of all. Without
  /// gradients; what follows the last layer's mixer is then computed for no others.
  Tensor wanted_R;

  /// int64, on the host: which adapter each row takes (model/adapters.h), -1: none. Undefined: all rows
  /// take the first, where there is one.
  Tensor adapter_T;

  /// Rows whose embedding comes from elsewhere, such as a vision tower (model/media_source.h): int64 [M],
  /// each once, and what they are, [M, H] in the precision of the activations. In place of the scaled
  /// embedding of their ids. Undefined: there are none.
  Tensor media_row_M;
  Tensor media_MH;

  int64_t num_tokens() const { return ids_T.size(0); }
};

}  // namespace slime::model
