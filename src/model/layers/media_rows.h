#pragma once

/// The stream after the embedding, with rows from elsewhere (TokenBatch::media_row_M).

#include "model/layers/tensor_parallel.h"
#include "model/token_batch.h"

namespace slime::model {

/// [L, H]: x_LH, which is one of the media rows where the batch has some. Differentiable in both: what is
/// replaced has no gradient. Of sequence-parallel ranks each takes those of its rows.
Tensor with_media(const Tensor& x_LH, const TokenBatch& batch, const TensorParallel& tp);

}  // namespace slime::model
