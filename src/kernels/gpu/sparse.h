#pragma once

/// Sparse attention of decode (model/layers/indexer.h) as the engine asks a GPU for it: what an indexer
/// makes of the rows is a call, its scores of all tokens and the choice of the best are one, and attention to
/// the chosen ones is latent attention's (LatentCall::chosen_TC). Nothing depends on the lengths of sequences on the host, so such a
/// step can be recorded.
///
/// Dimensions: T rows, each of a sequence of its own, J heads of an indexer with D numbers, C tokens that a
/// row looks at, at most.

#include "core/tensor.h"

namespace slime::kernels {

struct PagedBatch;

/// What an indexer makes of the rows of a step, from what its products leave.
struct IndexRowsCall {
  Tensor query_TE;             // [T, J D]
  Tensor key_TD;               // not normed
  Tensor weight_TJ;            // float32
  Tensor norm_D, norm_bias_D;  // of keys
  double norm_eps = 0;
  Tensor cos_PR, sin_PR;       // float32 [positions, R / 2]
  Tensor rotary_row_T;         // int64, of cos and sin
  bool rotates_pairs = false;  // neighbours; otherwise halves
};
/// float32, rotated; of rotating numbers the halves, whatever rotated with each other.
struct IndexRows {
  Tensor query_TJD;  // divided by the root of D
  Tensor key_TD;     // normed
  Tensor weight_TJ;  // divided by the root of J
};

struct IndexCall {
  const PagedBatch* batch = nullptr;
  // float32, contiguous.
  Tensor query_TJD;  // scaled
  Tensor key_TD;     // goes to the rows' slots
  Tensor weight_TJ;
  Tensor keys;            // [pages, kPageTokens, D]
  int64_t count = 0;      // the so many best are chosen
  int64_t most_keys = 0;  // no row sees more, in this step or another one with its recording
};

/// C: how many tokens are chosen where no row sees more than `most_keys`.
int64_t most_chosen(int64_t count, int64_t most_keys);
/// Numbers between the scores of two rows.
int64_t score_stride(int64_t most_keys);

/// Units of attention that share the chosen tokens of each row (split-KV). A thread block has a unit and 16
/// heads, and a multiprocessor one thread block.
int64_t units_of_chosen(int64_t num_rows, int64_t num_heads, int64_t most_chosen,
                        int64_t num_processors);

/// Of a step.
struct SparseDecodeSizes {
  int64_t num_rows = 0;
  int64_t most_keys = 0;
  int64_t count = 0;
  int64_t num_heads = 0;
  int64_t rank = 0;  // of the latent
};
/// Bytes of scores, the choice and attention's partial results.
int64_t sparse_decode_bytes(const SparseDecodeSizes& sizes, int64_t num_processors);

}  // namespace slime::kernels
