#pragma once

/// Per-token estimates of the divergence of one policy from another, from log-probs of sampled
/// tokens (spec section 5; J. Schulman, "Approximating KL divergence", 2020).

#include <string>

#include "core/tensor.h"

namespace slime::algo {

/// With d = logprob - base:  k1 = d   k2 = d^2 / 2   k3 = exp(-d) - 1 + d   low_var_kl = k3 clipped
/// to [-10, 10].
enum class KlType { kK1, kK2, kK3, kLowVar };

/// From "k1", "k2", "k3", "low_var_kl". Throws ConfigError for another word.
KlType kl_type_from_string(const std::string& word);

/// Elementwise, any shape. `importance`, when defined, multiplies the estimate before the clip of
/// low_var_kl and carries its gradient: exp(logprob - old) makes the estimator unbiased off policy
/// (arXiv 2512.02556).
Tensor kl_estimate(KlType type, const Tensor& logprob, const Tensor& base,
                   const Tensor& importance = {});

}  // namespace slime::algo
