#pragma once

/// Attention over the segments of a batch in which each token looks at some of the tokens before it,
/// which an indexer chose (model/layers/indexer.h). Plain products with a mask: as much work as
/// attention to all, and no kernel of its own.
///
/// Dimensions: T rows, L of them with queries, N heads, D size of queries and keys, V of values; of one
/// segment n rows, and S rows that it may look at: those of its ancestors and its own.
///
/// Queries are those of the rows [first, first + L): all rows, or a context-parallel rank's, whose segments
/// alone have queries.

#include <vector>

#include "model/attention.h"
#include "model/token_batch.h"

namespace slime::model {

/// Which of the S rows each row of a segment looks at.
struct SegmentChoice {
  Tensor row_S;    // int64, rows of the batch
  Tensor mask_nS;  // bool; its own row and earlier ones alone
};
using TokenChoice = std::vector<SegmentChoice>;  // segment by segment; undefined without queries

/// The `count` best of each token, or all where there are not more. `index`: keys of all rows, the rest of
/// those with queries.
TokenChoice choose_tokens(const IndexInput& index, const std::vector<Segment>& segments,
                          int64_t count, int64_t first = 0);

/// Scores of some queries for some keys: [n, S], float32 (float64). Keys are [S, D], the same for all
/// queries, or [n, S, D].
Tensor index_scores(const Tensor& query_nJD, const Tensor& weight_nJ, const Tensor& keys);

/// int64 [n, count]: the best of each row. Of equal scores the earlier token's counts, wherever the
/// scores were computed: where no head sees anything in them, tokens have a score of exactly 0.
Tensor best_tokens(const Tensor& score_nS, int64_t count);

struct SparseRows {
  const TokenChoice& choice;
  const std::vector<Segment>& segments;
  int64_t first = 0;
};

/// [L, N, V]. Differentiable in queries, keys and values; weights of keys are computed again in the
/// backward, in float32 (float64).
Tensor sparse_attention(const Tensor& query_LND, const Tensor& key_TND, const Tensor& value_TNV,
                        const SparseRows& rows, double scale);

}  // namespace slime::model
