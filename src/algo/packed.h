#pragma once

/// Packed responses: the layout every function of `algo` works on.
///
/// Dimensions in this folder
///   R  responses
///   T  their tokens, packed end to end without padding; prompts are not part of T
/// Response r owns the tokens [starts[r], starts[r + 1]). `starts` is int64 [R + 1] on the CPU; a
/// response may be empty. All functions work in float32 or float64, whichever the token tensors
/// have, and keep it.

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace slime::algo {

/// Prefix sums of the lengths: [R + 1].
Tensor make_starts(std::span<const int64_t> lengths);

/// int64 [T]: the response that owns each token.
Tensor response_of_token(const Tensor& starts);

/// x_R repeated over the tokens of each response: [T]. Differentiable.
Tensor expand_to_tokens(const Tensor& x_R, const Tensor& starts);

/// Sums over the tokens of each response: [R]. Differentiable.
Tensor sum_per_response(const Tensor& x_T, const Tensor& starts);

/// sum_t m x / max(sum_t m, 1) of each response: [R]. trained_T is bool. Differentiable in x_T.
Tensor mean_per_response(const Tensor& x_T, const Tensor& trained_T, const Tensor& starts);

}  // namespace slime::algo
