#pragma once

/// Sparse attention of a step over latents in pages (model/layers/indexer.h), on a GPU: operations of
/// LibTorch, some rows of queries at a time. Only chosen tokens are gathered and looked at; what an
/// indexer scores are all of them. Steps need their lengths on the host and cannot be recorded. Of steps
/// with prompts, and of decode in sizes and precisions without kernels (kernels/gpu/sparse.h), for which it
/// is the twin in the tests.
///
/// Dimensions: T rows of the step, N heads, L latent, E = R + L numbers of a row in the cache; of some
/// rows n, of what they see K keys, of what was chosen of these k.

#include <span>
#include <vector>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/paged_units.h"
#include "model/attention.h"
#include "model/config.h"

namespace slime::engine {

class GpuSparseAttention final {
 public:
  /// `spans`: of the step's sequences, which have all of its rows.
  void begin_step(const kernels::PagedBatch& batch, std::span<const kernels::PagedSpan> spans);

  /// Writes the keys of the step's rows into their places in index_keys, float32 [pages, 16, D], and
  /// chooses for each row the `count` best of the tokens that it sees.
  void choose(const model::IndexInput& index, const Tensor& index_keys, int64_t count);

  /// [T, N, L] in the precision of the queries, which are [T, N, E]: each row looks at the tokens of the
  /// last choice. rows_XE: the cache, with the step's rows in their places. Products in float32.
  Tensor attend(const Tensor& q_TNE, const Tensor& rows_XE, int64_t rank, double scale) const;

  /// Of a step, where the longest sequence has so many tokens.
  struct Sizes {
    int64_t rows = 0;  // T
    int64_t longest = 0;
    int64_t num_heads = 0;
    int64_t row_size = 0;  // E
  };
  /// Bytes that it takes besides the cache, at most.
  static int64_t workspace_bytes(const model::IndexerConfig& indexer, const Sizes& sizes);

 private:
  /// Rows that are computed together: of one sequence, or each of another one.
  struct Part {
    int64_t begin = 0;
    int64_t size = 0;
    int64_t num_keys = 0;  // that the row sees which sees the most
    bool is_one_sequence = false;
  };
  /// What its rows look at.
  struct Choice {
    Tensor slot_nk;  // int64; the row's own where is_seen_nk says no
    Tensor is_seen_nk;
  };

  /// Of tokens of the part's sequences: int64, rows of the cache. position_nk may be of one row alone.
  Tensor slots(const Part& part, const Tensor& position_nk) const;
  Tensor scores(const Part& part, const model::IndexInput& index, const Tensor& keys_XD) const;

  kernels::PagedBatch batch_;
  Tensor position_T1_;  // int64
  std::vector<Part> parts_;
  std::vector<Choice> choices_;  // of each part, by the last layer with an indexer
};

}  // namespace slime::engine
