#pragma once

/// The loss of one micro-batch, from per-token log-probs to one number and its metrics (spec
/// sections 7 to 10).
///
/// Values are *un-scaled sums* over the micro-batch: sum_t weight_T x_T. The trainer adds them over
/// micro-batches and ranks and divides once, by the number of rollout executions (10.1) or by the
/// number of trained tokens (10.2). So neither loss nor gradient depends on how a step was cut.

#include <map>
#include <optional>
#include <string>

#include "algo/kl.h"
#include "algo/mismatch.h"
#include "algo/policy_functions.h"
#include "algo/policy_objective.h"
#include "algo/score_centering.h"
#include "core/tensor.h"

namespace slime::algo {

enum class Reduction {
  kPerRollout,  // mean over the tokens of a rollout execution, then over executions
  kPerToken,    // mean over all trained tokens of the step (Megatron: calculate-per-token-loss)
};

/// What every token counts in a sum: m / max(D, 1), where D is the mask total of the token's whole
/// rollout execution, or just m. rollout_total_R: D per response, in the type of the result.
Tensor token_weights(Reduction how, const Tensor& trained_T, const Tensor& rollout_total_R,
                     const Tensor& starts);

/// -> what a response adds to the denominator of kPerToken: its trained tokens, but at least 1.
double token_denominator(const Tensor& trained_T, const Tensor& starts);

/// Sums by name, as the original names its metrics ("pg_loss", "ppo_kl", ...).
using MetricSums = std::map<std::string, double>;

struct Loss {
  Tensor sum;  // scalar with gradient
  MetricSums metrics;
};

struct KlLoss {
  KlType type = KlType::kK1;
  double coef = 0.0;
  bool unbiased = false;  // multiply by exp(logprob - old), with its gradient
};

struct PolicyLossConfig {
  PolicyObjective objective = TokenClip{};
  double entropy_coef = 0.0;
  std::optional<KlLoss> kl_loss;
  std::optional<OffPolicyMasking> off_policy_masking;
  std::optional<MismatchCorrection> correction;
  std::optional<ScoreCentering> centering;  // of Reinforce
  bool use_rollout_logprobs = false;        // the engine's log-probs are the old policy's
  /// Compute the correction's metrics without applying it (get-mismatch-metrics).
  bool reports_mismatch = false;
  /// Dr. GRPO (arXiv 2503.20783, equation 4): sum_t m pg / constant for each response instead of
  /// the mean over its tokens; metrics and other terms keep their mean. Not with kPerToken.
  std::optional<double> policy_divisor;
};

/// Columns of the response tokens of a micro-batch, packed. Undefined tensors: not available.
struct PolicyColumns {
  Tensor logprob_T;  // with gradient
  Tensor entropy_T;  // with gradient when entropy_coef != 0
  Tensor old_T;      // of the old policy by the trainer; undefined: this very pass, detached
  Tensor ref_T;      // needed by kl_loss
  /// As reported by the rollout engine; needed by correction and use_rollout_logprobs.
  Tensor engine_T;
  /// Where only some responses have them: zeros elsewhere, in the place of engine_T, and where they
  /// are (bool). For the train_rollout_ metrics, which are then sums over those.
  Tensor known_engine_T;
  Tensor has_engine_T;
  ListedTokens listed;  // needed by centering
  Tensor advantage_T;
  Tensor trained_T;  // bool
  Tensor weight_T;   // token_weights()
  Tensor starts;
};

/// Throws ConfigError when a column is missing that the configuration needs.
Loss policy_loss(const PolicyLossConfig& config, const PolicyColumns& in,
                 const PolicyFunctions& functions = {});

/// -sum weight logprob (section 9).
Loss supervised_loss(const Tensor& logprob_T, const Tensor& weight_T);

/// max((clip(v - V, -c, c) + V - ret)^2, (v - ret)^2), without a factor 1/2 (section 8).
Loss value_loss(double value_clip, const Tensor& value_T, const Tensor& old_value_T,
                const Tensor& return_T, const Tensor& weight_T);

}  // namespace slime::algo
