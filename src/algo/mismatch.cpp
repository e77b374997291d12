#include "algo/mismatch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "algo/packed.h"
#include "core/error.h"

namespace slime::algo {
namespace {

constexpr double kLogRatioBound = 20;  // exp of it still is a finite float32

using Metrics = std::vector<std::pair<std::string, Tensor>>;

MismatchEffect weights_and_metrics(const Tensor& weight_T, const Tensor& ratio_T,
                                   const MismatchTokens& in) {
  return {weight_T,
          in.trained_T,
          {{"tis", ratio_T},
           {"tis_clipfrac", (weight_T != ratio_T).to(ratio_T.dtype())},
           {"tis_abs", (ratio_T - 1).abs()}}};
}

MismatchEffect correct(const TruncatedImportance& how, const MismatchTokens& in) {
  const Tensor ratio_T = (in.trainer_T - in.engine_T).exp();
  return weights_and_metrics(ratio_T.clamp(how.low, how.high), ratio_T, in);
}

MismatchEffect correct(const DroppedImportance& how, const MismatchTokens& in) {
  const Tensor ratio_T = (in.trainer_T - in.engine_T).exp();
  const Tensor is_inside_T = (ratio_T >= how.low) & (ratio_T <= how.high);
  return weights_and_metrics(at::where(is_inside_T, ratio_T, at::zeros_like(ratio_T)), ratio_T, in);
}

/// The pieces of MIS that look at one micro-batch; `difference_T` is d.
class Mis {
 public:
  Mis(const ImportanceAndRejection& how, const MismatchTokens& in)
      : how_(how),
        in_(in),
        mask_T_(in.trained_T.to(in.trainer_T.dtype())),
        difference_T_(in.trainer_T - in.engine_T),
        lower_(how.lower.value_or(1 / how.upper)) {}

  MismatchEffect run() {
    add_diagnostics();
    if (!how_.weighs) return {Tensor(), in_.trained_T, std::move(metrics_)};
    Tensor weight_T = ratio(how_.level);
    add("tis_weight_before_bound", weight_T);
    Tensor kept_T = in_.trained_T;
    weight_T = bounded(weight_T, kept_T) * mask_T_;
    add("tis_weight_after_bound", weight_T);
    if (how_.rejection) kept_T = rejected(*how_.rejection, kept_T);
    add("is_ratio_mean_after_tis_rs", weight_T);
    if (how_.batch_normalize) weight_T = weight_T / batch_mean(weight_T);
    add_final_statistics(weight_T);
    return {weight_T, kept_T, std::move(metrics_)};
  }

 private:
  void add(const std::string& name, const Tensor& x_T) {
    metrics_.emplace_back("mis_" + name, x_T.to(difference_T_.dtype()));
  }
  void add_per_response(const std::string& name, const Tensor& x_R) {
    add(name, expand_to_tokens(x_R, in_.starts));
  }
  Tensor mean_of(const Tensor& x_T) const {
    return mean_per_response(x_T, in_.trained_T, in_.starts);
  }
  Tensor sum_of(const Tensor& x_T) const { return sum_per_response(x_T * mask_T_, in_.starts); }

  void add_diagnostics() {
    const Tensor trainer_R = mean_of(in_.trainer_T), engine_R = mean_of(in_.engine_T);
    add_per_response("training_log_ppl", -trainer_R);
    add_per_response("training_ppl", (-trainer_R).exp());
    add_per_response("rollout_log_ppl", -engine_R);
    add_per_response("rollout_ppl", (-engine_R).exp());
    add("kl", -difference_T_);
    add("k3_kl", difference_T_.exp() - difference_T_ - 1);
    add_per_response("log_ppl_diff", engine_R - trainer_R);
    add_per_response("log_ppl_abs_diff", (engine_R - trainer_R).abs());
    add_per_response("ppl_ratio", (engine_R - trainer_R).exp());
    add_per_response("chi2_token", mean_of(safe_exp(difference_T_).square()) - 1);
    add_per_response("chi2_seq", safe_exp(sum_of(difference_T_)).square() - 1);
  }

  static Tensor safe_exp(const Tensor& x) { return x.clamp(-kLogRatioBound, kLogRatioBound).exp(); }

  Tensor ratio(RatioLevel level) const {
    switch (level) {
      case RatioLevel::kToken:
        return safe_exp(difference_T_);
      case RatioLevel::kSequence:
        return expand_to_tokens(safe_exp(sum_of(difference_T_)), in_.starts);
      case RatioLevel::kGeometric:
        return expand_to_tokens(safe_exp(mean_of(difference_T_)), in_.starts);
    }
    throw BugError("a RatioLevel outside its enumeration");
  }

  Tensor bounded(const Tensor& weight_T, Tensor& kept_T) {
    switch (how_.mode) {
      case BoundMode::kTruncate:
        add("tis_truncate_fraction", weight_T > how_.upper);
        return weight_T.clamp(0, how_.upper);
      case BoundMode::kClip:
        add("tis_clip_fraction_low", weight_T < lower_);
        add("tis_clip_fraction_high", weight_T > how_.upper);
        return weight_T.clamp(lower_, how_.upper);
      case BoundMode::kMask:
        add("tis_mask_fraction_low", weight_T < lower_);
        add("tis_mask_fraction_high", weight_T > how_.upper);
        kept_T = kept_T & (weight_T >= lower_) & (weight_T <= how_.upper);
        return weight_T;
    }
    throw BugError("a BoundMode outside its enumeration");
  }

  Tensor rejected(const Rejection& rule, const Tensor& kept_T) {
    const Tensor ratio_T = ratio(rule.level);
    const Tensor is_low_T = ratio_T < rule.lower.value_or(lower_);
    const Tensor is_high_T = ratio_T > rule.upper.value_or(how_.upper);
    add("rs_mask_fraction_low", is_low_T);
    add("rs_mask_fraction_high", is_high_T);
    Tensor left_T = kept_T & ~(is_low_T | is_high_T);
    if (rule.veto_threshold) {
      const Tensor is_bad_T = (difference_T_ < std::log(*rule.veto_threshold)) & in_.trained_T;
      const Tensor has_bad_R = sum_per_response(is_bad_T.to(difference_T_.dtype()), in_.starts) > 0;
      const Tensor vetoed_T = expand_to_tokens(has_bad_R, in_.starts);
      add("rs_catastrophic_token_fraction", is_bad_T);
      add("rs_catastrophic_seq_fraction", vetoed_T);
      left_T = left_T & ~vetoed_T;
    }
    return left_T;
  }

  /// The mean of all trained tokens, or of the responses' means; 1 where it is no divisor.
  double batch_mean(const Tensor& weight_T) {
    // sync: one number per micro-batch.
    const double count = mask_T_.sum(at::kDouble).item<double>();
    double mean = how_.level == RatioLevel::kToken
                      ? weight_T.sum(at::kDouble).item<double>() / std::max(count, 1.0)
                      : mean_of(weight_T).mean(at::kDouble).item<double>();
    if (!(mean > 1e-8)) mean = 1;
    add("batch_norm_factor", at::full_like(weight_T, mean));
    return mean;
  }

  void add_final_statistics(const Tensor& weight_T) {
    add_per_response("is_ratio_mean_final", mean_of(weight_T));
    const Tensor owner_T = response_of_token(in_.starts).to(weight_T.device());
    const auto extreme = [&](const char* reduce) {
      const Tensor zeros_R = at::zeros({in_.starts.size(0) - 1}, weight_T.options());
      const Tensor trained_T = in_.trained_T.nonzero().squeeze(1);
      return zeros_R.scatter_reduce(0, owner_T.index_select(0, trained_T),
                                    weight_T.index_select(0, trained_T), reduce,
                                    /*include_self=*/false);
    };
    add_per_response("is_ratio_min_final", extreme("amin"));
    add_per_response("is_ratio_max_final", extreme("amax"));
  }

  const ImportanceAndRejection& how_;
  const MismatchTokens& in_;
  Tensor mask_T_;
  Tensor difference_T_;  // d
  double lower_;
  Metrics metrics_;
};

MismatchEffect correct(const ImportanceAndRejection& how, const MismatchTokens& in) {
  return Mis(how, in).run();
}

}  // namespace

RatioLevel ratio_level_from_string(const std::string& word, const std::string& key) {
  if (word == "token") return RatioLevel::kToken;
  if (word == "sequence") return RatioLevel::kSequence;
  if (word == "geometric") return RatioLevel::kGeometric;
  throw ConfigError(fmt::format("{}: \"{}\" is not one of token, sequence, geometric", key, word));
}

BoundMode bound_mode_from_string(const std::string& word, const std::string& key) {
  if (word == "truncate") return BoundMode::kTruncate;
  if (word == "clip") return BoundMode::kClip;
  if (word == "mask") return BoundMode::kMask;
  throw ConfigError(fmt::format("{}: \"{}\" is not one of truncate, clip, mask", key, word));
}

MismatchEffect correct_mismatch(const MismatchCorrection& how, const MismatchTokens& in) {
  const at::NoGradGuard no_grad;
  return std::visit([&](const auto& correction) { return correct(correction, in); }, how);
}

void check_bounds(const ImportanceAndRejection& how) {
  const double lower = how.lower.value_or(1 / how.upper);
  check(how.upper > 0, "the upper bound of a ratio is above 0");
  check(how.mode == BoundMode::kTruncate || lower < how.upper,
        "the lower bound of a ratio is below the upper");
  check(!how.batch_normalize || how.level != RatioLevel::kGeometric,
        "geometric ratios have no mean of weights");
  if (!how.rejection) return;
  check(how.rejection->lower.value_or(lower) < how.rejection->upper.value_or(how.upper),
        "the lower bound of a rejection is below the upper");
  check(how.rejection->veto_threshold.value_or(1) > 0, "a veto is above 0");
}

}  // namespace slime::algo
