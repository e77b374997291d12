#pragma once

/// Advantages: from one score per response to one number per token (spec section 6).
///
/// Pure functions: no I/O, no globals, no communication between ranks. The trainer calls them once
/// per rollout step, after the log-probs are known and before the first training step. Dimensions:
/// algo/packed.h.

#include <functional>
#include <variant>

#include "core/tensor.h"

namespace slime::algo {

/// What an estimator may look at. Everything but `starts` lives on one device.
struct ScoredTokens {
  Tensor score_R;    // float  reward of the response, after group normalisation
  Tensor starts;     // int64  [R + 1] on the CPU
  Tensor trained_T;  // bool   false where a tool, not the policy, wrote the token
  Tensor kl_T;     // float  divergence of policy from reference, in nats; undefined reads as zeros
  Tensor value_T;  // float  the critic's estimate; undefined without a critic
};

struct Advantages {
  Tensor advantage_T;  // float  defined on every token; the loss skips untrained ones
  Tensor return_T;     // float  what the critic learns to predict
};

/// GRPO, GSPO, CISPO: each token gets the score of its response. arXiv 2402.03300, section 4.1.
struct GroupRelative {};

/// PPO: GAE over token rewards, -kl_coef * kl on each token plus the score on the last one,
/// whatever its mask. Needs value_T. arXiv 1506.02438, section 3.
struct Gae {
  double gamma = 1.0;
  double lambda = 1.0;
  double kl_coef = 0.0;
};

/// REINFORCE++: discounted sum of token rewards, -kl_coef * kl on each trained token plus the score
/// on the last trained one; a response without a trained token has return 0. Needs whitening after
/// it. arXiv 2501.03262.
struct ReinforcePlusPlus {
  double gamma = 1.0;
  double kl_coef = 0.0;
};

/// REINFORCE++ with the group mean as baseline: score - kl_coef * kl on each token. Needs whitening
/// after it.
struct ReinforceBaseline {
  double kl_coef = 0.0;
};

/// Throws ConfigError when `in` lacks a tensor that the estimator needs.
Advantages estimate(const GroupRelative& how, const ScoredTokens& in);
Advantages estimate(const Gae& how, const ScoredTokens& in);
Advantages estimate(const ReinforcePlusPlus& how, const ScoredTokens& in);
Advantages estimate(const ReinforceBaseline& how, const ScoredTokens& in);

/// What the trainer is given: a built-in named in the configuration, or a user's plugin.
using AdvantageFn = std::function<Advantages(const ScoredTokens&)>;
using AdvantageConfig = std::variant<GroupRelative, Gae, ReinforcePlusPlus, ReinforceBaseline>;
AdvantageFn make_advantage_fn(const AdvantageConfig& config);

/// The coefficient of the divergence inside the token rewards; 0 for estimators without one.
double kl_coef_of(const AdvantageConfig& config);

/// On-policy distillation, on top of any estimator: advantage - coef * (logprob - teacher) (spec
/// section 6.6).
Tensor distilled_advantage(const Tensor& advantage_T, const Tensor& logprob_T,
                           const Tensor& teacher_T, double coef);

/// Sums that whitening needs; those of several ranks or of several parts add up.
struct Moments {
  double count = 0;    // trained tokens
  double sum = 0;      // of their advantages
  double squares = 0;  // of their squared advantages

  Moments& operator+=(const Moments& other);
};

/// In double precision, over trained tokens.
Moments moments_of(const Tensor& advantage_T, const Tensor& trained_T);

/// (A - mean) / sqrt(variance + 1e-8) with the unbiased variance (spec section 6.8), on every
/// token, untrained ones included. `moments` are those of the whole rollout step, over all ranks.
/// Throws ConfigError when nothing is trained.
Tensor whiten(const Tensor& advantage_T, const Moments& moments);

}  // namespace slime::algo
