#pragma once

/// Softmax of one row of scores between the products of block-wise attention in bfloat16: float32
/// scores in, bfloat16 factors of the next product out. A row is a query against one block of keys;
/// columns outside `seen` become zeros up to `padded`.

#include <ATen/ATen.h>

#include "kernels/cpu/attention_blocks.h"

namespace slime::kernels::cpu {

/// The softmax of a query so far, in units of the scaled scores.
struct SoftmaxState {
  float largest;
  float total;
};

/// From products of queries and keys to what the softmax sees.
struct ScoreForm {
  float scale;
  float cap;  // of what is scaled (kernels/soft_cap.h); 0: none
};

struct AttentionRows {
  /// weights = exp(scale * scores - largest); the state takes them in. Returns the factor for what
  /// was summed before. With a cap the seen scores are overwritten, here and below.
  float (*softmax)(float* scores, const Visible& seen, int64_t padded, const ScoreForm& form,
                   SoftmaxState& state, at::BFloat16* weights);
  /// p = exp(scale * scores - logsumexp), ds = scale * p * (dp - delta), times the slope of a cap.
  void (*backward)(float* scores, const float* dp, const Visible& seen, int64_t padded,
                   const ScoreForm& form, float logsumexp, float delta, at::BFloat16* p,
                   at::BFloat16* ds);
};

/// Plain loops.
const AttentionRows& attention_rows();
/// The same for AVX-512: call only after has_avx512().
const AttentionRows& attention_rows_avx512();

}  // namespace slime::kernels::cpu
