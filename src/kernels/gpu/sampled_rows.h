#pragma once

/// Parameters and results of sampling the rows of a step on a GPU.
///
/// Dimensions: T rows (tokens) of a step, S sequences they belong to, U units of tiled attention, R sampled
/// rows, V vocabulary, N query heads, K key-value heads, D head size, E = (N + 2 K) D.

#include "core/tensor.h"
#include "kernels/gpu/row_extras.h"

namespace slime::kernels {

/// Parameters of the sampled rows. The uniform number comes from the host, where the counter-based
/// generator lives: it is the one number that decides the draw.
struct SampleRows {
  Tensor uniform_R;      // float64  in (0, 1)
  Tensor temperature_R;  // float32  > 0
  Tensor top_p_R;        // float32
  Tensor min_p_R;        // float32
  Tensor top_k_R;        // int32    -1: all; 0: the largest logit (greedy)
  Tensor extras_R;       // uint8 [R, sizeof(RowExtras)]; undefined: no row has one
};

/// What a draw gives. The log-prob is of the full distribution at the row's temperature (of the
/// kept tokens where they are reported), NaN (and token 0) for a row whose logits are no numbers.
struct SampledRows {
  Tensor token_R;     // int32
  Tensor log_prob_R;  // float32
  Tensor num_kept_R;  // int32    of rows with a report: kept ids in it, or kHandedOver
};

}  // namespace slime::kernels
