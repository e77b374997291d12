#pragma once

/// Rows of one engine step on a GPU: their places in the paged KV cache, and the launches of attention.
///
/// Dimensions: T rows (tokens) of a step, S sequences they belong to, U units of tiled attention, R sampled
/// rows, V vocabulary, N query heads, K key-value heads, D head size, E = (N + 2 K) D.

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "kernels/device.h"
#include "kernels/gated_delta.h"
#include "kernels/gpu/exact_units.h"
#include "kernels/gpu/packed_prompts.h"
#include "kernels/page.h"

namespace slime::kernels {

/// For which layers a launch of the tiled attention kernel is: of those that see all keys some units
/// see a chunk each, and those with a window have few keys anyway.
enum class TiledLayers { kAll, kWithoutWindow, kWithWindow };

/// One launch of the tiled attention kernel over some of the step's sequences. A unit is a tile of
/// (query row, query head of one key-value head) pairs against all their keys. Which units there
/// are is planned on the host (kernels/gpu/paged_units.h).
struct TileLaunch {
  TiledLayers layers = TiledLayers::kAll;
  int64_t tile = 16;       // query rows x heads of a tile: 16, 64 or 128
  int64_t num_units = 0;   // U, as launched: some may be switched off
  Tensor unit_sequence_U;  // int32
  Tensor unit_tile_U;      // int32    number of the tile within its sequence
  Tensor unit_chunk_U;     // int32    which chunk of its sequence's keys it sees
  Tensor unit_is_on_U;     // uint8    0: the unit does nothing
  Tensor chunk_tokens;     // int32 [1]    more than any sequence has: keys are not split
  Tensor num_rows;         // int32 [1]    rows that are real
  // Split keys (kernels/gpu/paged_units.h). Rows of other launches become zero: it is the first.
  int64_t num_partials = 0;  // 0: keys are not split
  Tensor partial_starts;     // int32 [S]
  Tensor merge_starts;       // int32 [T + 1]

  bool is_for(int64_t window) const {
    return layers == TiledLayers::kAll || (layers == TiledLayers::kWithWindow) == (window > 0);
  }
};

/// The launch of the decode kernel: sequences of one row. Planned on the host
/// (kernels/gpu/decode_units.h); the lists may be longer than what is used of them.
struct DecodeLaunch {
  int64_t num_units = 0;    // 0: no launch
  int64_t num_records = 0;  // room for partial results
  Tensor unit_starts;       // int32 [units + 1]
  Tensor segments;          // int32 [segments, 8]: DecodeSegment
  Tensor members;           // int32 [members, 4]: DecodeMember
  Tensor record_starts;     // int32 [S + 1]
};

/// The rows of one step and where their keys and values are. The same for all layers.
struct PagedBatch {
  Tensor slot_T;            // int32  page * kPageTokens + slot, where this row's key and value go
  Tensor row_sequence_T;    // int32
  Tensor index_T;           // int64  in its sequence: a row sees the keys up to its own
  Tensor query_starts;      // int32 [S + 1]
  Tensor page_starts;       // int32 [S + 1]
  Tensor pages;             // int32, flat
  Tensor last_page_tokens;  // int32 [S]  tokens in the last page, this step's included
  Tensor state_S;           // int32  where layers keep states: the sequence's; below 0: padding
  std::vector<TileLaunch> tiles;
  PackedLaunch packed;
  DecodeLaunch decode;
  ExactLaunch exact;  // of steps in training arithmetic, which have no other launch
  /// Rows of decode see new keys of other rows, whose drafts they verify: all are written before any is read.
  bool sees_new_keys = false;
};

struct PagedCall {
  const PagedBatch* batch = nullptr;
  Tensor qkv_TE;              // may be overwritten: its query heads become normed and rotated
  Tensor rotary_row_T;        // int64, of cos and sin
  Tensor q_norm_D, k_norm_D;  // in the precision of qkv or in float32; undefined: no norm
  Tensor cos_PR, sin_PR;      // float32
  Tensor sinks_N;             // attention sinks, in the precision of qkv; undefined: none
  RotaryShape heads;
  TreeAttentionShape attention;
  // [pages, K, kPageTokens, D] of this layer, in the precision of qkv; where there is tiled
  // attention also in fp8 (Float8_e4m3fn): what does not fit becomes +-448.
  Tensor keys, values;
};

/// The gated delta rule of a layer over the rows of a step (kernels/gated_delta.h).
struct DeltaCall {
  const PagedBatch* batch = nullptr;
  DeltaTokens in;  // mixed_TE before the convolution, in the precision of the activations
  DeltaShape shape;
  int64_t taps = 0;
  Tensor conv;  // [E, 1, taps]
  Tensor
      states_PX;  // float32: at each place the state of a sequence in this layer, advanced in place
};

}  // namespace slime::kernels
