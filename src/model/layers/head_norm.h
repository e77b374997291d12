#pragma once

/// The RMS norms of queries and keys over all heads of a token, where ranks have some of the heads each:
/// a token's squares are summed over the ranks, and on the way back the dot products of its gradient.
///
/// Dimensions: T tokens, C numbers that this rank has of a token's queries (keys).

#include "core/tensor.h"
#include "kernels/param.h"
#include "model/layers/tensor_parallel.h"

namespace slime::model {

struct Heads {
  Tensor query_TC;
  Tensor key_TC;
};
/// The weights of this rank's numbers. One for each of Heads.
struct HeadNorms {
  kernels::Param query_C;
  kernels::Param key_C;
};

/// In the precision of the heads. One message for both, forward and backward. All ranks have as many
/// numbers.
Heads normed_over_ranks(const Heads& heads, const HeadNorms& weights, double eps,
                        const TensorParallel& tp);

}  // namespace slime::model
