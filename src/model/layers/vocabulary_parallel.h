#pragma once

/// Embedding and output layer of which each tensor-parallel rank holds the rows of its part of the
/// vocabulary.
///
/// Dimensions: T tokens, L rows of the stream (model/layers/tensor_parallel.h), H hidden, V ids of the
/// rank's part, R scored rows.

#include "kernels/linear_logprob.h"
#include "kernels/param.h"
#include "model/layers/tensor_parallel.h"
#include "model/parallel_layout.h"

namespace slime::model {

/// The stream's [L, H]. `ids`: those of table_VH; all of them where the slice is.
Tensor embedded(const Tensor& ids_T, const kernels::Param& table_VH, const Slice& ids,
                at::ScalarType activations, const TensorParallel& tp);

/// kernels::linear_logprob() over the whole vocabulary, the same on all ranks. hidden_RH is the same
/// on all of them too, and so is its gradient.
kernels::LogProbs log_probs(const Tensor& hidden_RH, const kernels::MatrixParam& head_VH,
                            const Slice& ids, const Tensor& target_R,
                            const kernels::LinearLogProbOptions& options, const TensorParallel& tp);

/// kernels::logits() over the whole vocabulary of `vocab_size` ids, float32 [R, vocab_size], the same on
/// all ranks: each computes those of its ids, and they are gathered. `cap`: 0: none. No gradient.
Tensor logits(const Tensor& hidden_RH, const kernels::MatrixParam& head_VH, const Slice& ids,
              int64_t vocab_size, double cap, const TensorParallel& tp);

}  // namespace slime::model
