#pragma once

/// Where tensor-parallel ranks meet: around each pair of products of which the first is sliced by
/// outputs (heads, feed-forward width) and the second by inputs (Megatron's f and g).
///
///   x, the same on all ranks -> sum_gradient -> product by slices of the outputs -> ... each its
///   own
///   -> product by slices of the inputs -> sum_over_ranks -> y, the same on all ranks
///
/// With one rank both are the identity and cost nothing.

#include "comm/rank_group.h"
#include "core/tensor.h"
#include "model/layers/products.h"
#include "model/weights.h"

namespace slime::model {

/// x itself; in the backward its gradient is the sum of what the ranks have of it.
Tensor sum_gradient(const Tensor& x, comm::RankGroup& tp);

/// The sum of what the ranks have, which is overwritten; the gradient passes as it is.
Tensor sum_over_ranks(const Tensor& partial, comm::RankGroup& tp);

/// A product whose inputs are sliced over the ranks: the sum of their products. One rank adds the
/// bias.
Tensor summed_linear(const Tensor& x, const Product& product, comm::RankGroup& tp);

}  // namespace slime::model
