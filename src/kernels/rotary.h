#pragma once

/// Query and key heads of a fused projection, normed and rotated.
///
/// Dimensions: T tokens, N query heads, K key-value heads, D head size, E = (N + 2 K) D, P
/// positions, R = D / 2. Half-split rotary embedding (arXiv 2104.09864): with c, s = cos, sin of
/// the token's position,
///   out[i] = x[i] c[i] - x[i + R] s[i]        out[i + R] = x[i + R] c[i] + x[i] s[i]

#include "core/tensor.h"
#include "kernels/device.h"
#include "kernels/param.h"

namespace slime::kernels {

/// [T, E], value heads as they were. q_norm and k_norm [D] apply per head before the rotation;
/// undefined: no norm. Positions must be below P.
Tensor norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T, const Param& q_norm_D,
                   const Param& k_norm_D, const Tensor& cos_PR, const Tensor& sin_PR,
                   const RotaryShape& shape);

}  // namespace slime::kernels
