#pragma once

/// Context-parallel rows: those of a packed batch that each rank computes. Rows are dealt after
/// packing, so the batch is the same however many ranks there are.
///
/// Each segment is cut into 2 cp pieces, and rank r has the pieces r and 2 cp - 1 - r of it (zigzag):
/// as much causal attention for each. Or (contiguous_context) rank r has the r-th run of the batch's
/// rows, and segments are cut where runs end. A piece continues the piece before it as a segment
/// continues its parent, so prefixes stay shared.
///
///   one segment of 8 rows, cp 2:   rank 0: 0 1 6 7     rank 1: 2 3 4 5
///
/// Attention looks at the rows of all ranks, in the order of the ranks ("gathered" rows).
///
/// Dimensions: T rows of the batch, L of them this rank's, which may be none.

#include <vector>

#include "comm/mesh.h"
#include "model/token_batch.h"

namespace slime::model {

struct ContextRows {
  /// `whole` is the same on all ranks of the group.
  ContextRows(const TokenBatch& whole, const comm::Mesh& mesh);

  comm::RankGroup& ranks;
  TokenBatch own;                    // [L]; without segments where there are several ranks
  Tensor own_L;                      // int64: the batch's row of each of them
  Tensor place_T;                    // int64: where this rank has a row of the batch, or -1
  std::vector<comm::Range> of_rank;  // gathered rows of each rank
  std::vector<Segment> pieces;       // of gathered rows; those of this rank have queries
};

}  // namespace slime::model
