#pragma once

/// Corrections for engine and trainer disagreeing about the policy that drew the tokens (spec
/// sections 7.6 and 7.7): importance weights on the policy-gradient term, and rejection of tokens
/// or responses. All of it is constant for the gradient. Dimensions: algo/packed.h.
///
/// With d = trainer's - engine's log-prob of the old policy, per token:

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace slime::algo {

/// w = exp(d), clipped to [low, high] (truncated importance sampling).
struct TruncatedImportance {
  double low = 0.0;
  double high = 2.0;
};

/// w = exp(d), but 0 outside [low, high] (IcePop, arXiv 2510.18855).
struct DroppedImportance {
  double low = 0.0;
  double high = 2.0;
};

/// What one ratio is taken over: x = d;  x = sum of d over the trained tokens of the response;
/// x = their mean.
enum class RatioLevel { kToken, kSequence, kGeometric };

/// "token", "sequence", "geometric". Throws ConfigError for another word, naming `key`.
RatioLevel ratio_level_from_string(const std::string& word, const std::string& key);

/// What becomes of w = exp(clip(x, -20, 20)) at its bounds.
enum class BoundMode {
  kTruncate,  // clip(w, 0, upper)
  kClip,      // clip(w, lower, upper)
  kMask,      // w stays, tokens outside [lower, upper] leave the sum
};

/// "truncate", "clip", "mask". Throws ConfigError for another word, naming `key`.
BoundMode bound_mode_from_string(const std::string& word, const std::string& key);

/// Tokens whose ratio at `level` is outside [lower, upper] leave the sum.
struct Rejection {
  RatioLevel level = RatioLevel::kToken;
  std::optional<double> lower;  // default: the importance weight's
  std::optional<double> upper;
  /// A response with a trained token of exp(d) below this leaves as a whole.
  std::optional<double> veto_threshold;
};

/// MIS: importance sampling and rejection, each at its own level. Rejected tokens count as zeros:
/// denominators stay those of the original masks (spec 21.9).
struct ImportanceAndRejection {
  bool weighs = true;  // false: diagnostics alone, no weight and no rejection
  RatioLevel level = RatioLevel::kToken;
  BoundMode mode = BoundMode::kTruncate;
  double upper = 2.0;
  std::optional<double> lower;  // default: 1 / upper
  std::optional<Rejection> rejection;
  /// Divides the weights by their mean over the *micro-batch*, as the original does: the one
  /// correction whose result depends on how a step was cut. Not for the geometric level.
  bool batch_normalize = false;
};

using MismatchCorrection =
    std::variant<TruncatedImportance, DroppedImportance, ImportanceAndRejection>;

struct MismatchTokens {
  Tensor trainer_T;  // log-probs of the old policy by the trainer
  Tensor engine_T;   // as the rollout engine reported them
  Tensor trained_T;  // bool
  Tensor starts;     // int64 [R + 1] on the CPU
};

struct MismatchEffect {
  Tensor weight_T;  // multiplies the policy-gradient term; undefined: 1
  Tensor kept_T;    // bool: trained tokens that stay in the sum
  /// Names and per-token values, to be averaged over the original mask: tis, tis_clipfrac and
  /// tis_abs, or mis_kl, mis_tis_weight_after_bound, ...
  std::vector<std::pair<std::string, Tensor>> metrics;
};

MismatchEffect correct_mismatch(const MismatchCorrection& how, const MismatchTokens& in);

/// Throws BugError: bounds in the wrong order, batch normalisation at the geometric level.
void check_bounds(const ImportanceAndRejection& how);

}  // namespace slime::algo
