// The objective of the policy: with a ratio or without one, and score centering (reference slime_0_4.md 6).

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "config/advantage_estimators.h"
#include "config/rules.h"

namespace slime::config {
namespace {

constexpr std::string_view kCentering = "--use-score-centering";

void check_policy_gradient(const RunConfig& config, Problems& problems) {
  using Objective = AdvantageEstimator::Objective;
  const AdvantageEstimator& estimator = advantage_estimator_of(config.advantage_estimator.get());
  const std::string& type = config.pg_loss_type;
  if (type.empty()) return;
  problems.require(
      estimator.objective != Objective::kClippedWeight,
      fmt::format("--pg-loss-type {}: --advantage-estimator {} has an objective of its "
                  "own; leave one out",
                  type, estimator.word));
  problems.require(
      estimator.objective != Objective::kSequenceClip || type == "ppo",
      fmt::format("--pg-loss-type {}: --advantage-estimator {} is a ratio of whole responses; use "
                  "grpo, or --pg-loss-type ppo",
                  type, estimator.word));
}

/// What else the loss of each token would be made of.
void check_other_terms(const RunConfig& config, Problems& problems) {
  const auto refuse = [&](bool is_set, std::string_view flag, std::string_view why) {
    problems.require(!is_set, fmt::format("{} and {}: {}", kCentering, flag, why));
  };
  const AdvantageEstimator& estimator = advantage_estimator_of(config.advantage_estimator.get());
  refuse(estimator.objective != AdvantageEstimator::Objective::kTokenClip,
         fmt::format("--advantage-estimator {}", estimator.word),
         "scores are centered beside REINFORCE; use grpo or a reinforce estimator");
  refuse(!config.pg_loss_type.empty() && config.pg_loss_type != "reinforce",
         fmt::format("--pg-loss-type {}", config.pg_loss_type.get()),
         "scores are centered beside REINFORCE; leave one out");
  refuse(config.use_opd, "--use-opd", "the teacher's part of the advantage differs by token");
  refuse(config.use_opsm, "--use-opsm", "tokens it drops would still be centered");
  refuse(config.get_mismatch_metrics, "--get-mismatch-metrics",
         "train/sc_* say how far sampler and trainer are apart; leave one out");
  refuse(config.use_unbiased_kl, "--use-unbiased-kl", "it needs a ratio; leave one out");
  refuse(!config.custom_pg_loss_reducer_function_path.empty(),
         "--custom-pg-loss-reducer-function-path", "use --policy-loss-divisor or a mean");
  refuse(
      !config.custom_loss_function_path.empty() || !config.custom_loss_library.empty(),
      config.custom_loss_library.empty() ? "--custom-loss-function-path" : "--custom-loss-library",
      "it is in the place of the loss; leave one out");
}

void check_weights(const RunConfig& config, Problems& problems) {
  if (!config.use_tis) return;
  problems.require(
      !config.uses_mis() && config.users_correction().empty(),
      fmt::format("{} and --custom-tis-function-path {}: each token that could be drawn "
                  "is weighed, which vanilla_tis_function and icepop_function of "
                  "slime.backends.megatron_utils.loss alone can do",
                  kCentering, config.custom_tis_function_path.get()));
  problems.require(
      std::isfinite(config.tis_clip_low) && std::isfinite(config.tis_clip) &&
          config.tis_clip_low >= 0 && config.tis_clip > 0 && config.tis_clip_low <= config.tis_clip,
      fmt::format(
          "{}: needs 0 <= --tis-clip-low <= --tis-clip, above 0 and finite; they are {} and "
          "{}",
          kCentering, config.tis_clip_low, config.tis_clip));
}

/// Whether the engine's log-probs are those of the distribution that it draws from.
void check_sampler(const RunConfig& config, Problems& problems) {
  problems.require(config.rollout_temperature > 0,
                   fmt::format("{}: needs --rollout-temperature above 0", kCentering));
  problems.require(config.rollout_top_k == -1,
                   fmt::format("{} and --rollout-top-k {}: the sampler's distribution is known of "
                               "top-p alone; leave --rollout-top-k out",
                               kCentering, config.rollout_top_k));
  problems.require(config.rollout_top_p < 1 || config.score_centering_top_k >= 1,
                   fmt::format("--score-centering-top-k {}: should be at least 1",
                               config.score_centering_top_k));
  problems.require(config.rollout_top_p == 1 || !config.has_external_engines(),
                   fmt::format("{} and --rollout-top-p {}: servers of others do not tell what a "
                               "token was drawn from; use --rollout-top-p 1",
                               kCentering, config.rollout_top_p));
  constexpr std::string_view kStreaming =
      "slime.rollout.sglang_streaming_rollout.generate_streaming";
  problems.require(config.custom_generate_function_path != kStreaming,
                   fmt::format("{} and --custom-generate-function-path {}: use "
                               "slime.rollout.sglang_rollout.generate",
                               kCentering, kStreaming));
  const char* original = std::getenv("SGLANG_RETURN_ORIGINAL_LOGPROB");
  const std::string_view word = original == nullptr ? "" : original;
  const bool is_on = word == "1" || word == "true" || word == "True" || word == "TRUE";
  problems.require(
      !is_on || (config.rollout_temperature == 1 && config.rollout_top_p == 1),
      fmt::format("{}: SGLANG_RETURN_ORIGINAL_LOGPROB={} asks engines for log-probs of "
                  "another distribution than they draw from; unset it",
                  kCentering, word));
}

}  // namespace

void check_objective(const RunConfig& config, Problems& problems) {
  if (config.loss_type != "policy_loss") {
    const auto refuse = [&](bool is_set, std::string_view flag) {
      problems.require(!is_set, fmt::format("{}: needs --loss-type policy_loss; it is {}", flag,
                                            config.loss_type.get()));
    };
    refuse(!config.pg_loss_type.empty(), "--pg-loss-type");
    refuse(config.use_score_centering, kCentering);
    return;
  }
  check_policy_gradient(config, problems);
  if (!config.use_score_centering) return;
  check_other_terms(config, problems);
  check_weights(config, problems);
  check_sampler(config, problems);
}

}  // namespace slime::config
