#include "tinker/token_losses.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "algo/loss.h"
#include "algo/packed.h"
#include "core/error.h"

namespace slime::tinker {
namespace {

using algo::PolicyColumns;

struct Bounds {
  double low;
  double high;
};

Bounds bounds_of(const FieldReader& config, double low, double high) {
  static constexpr auto kFields =
      std::to_array<std::string_view>({"clip_low_threshold", "clip_high_threshold"});
  config.refuse_unknown(kFields);
  const Bounds bounds{config.number("clip_low_threshold", 0).value_or(low),
                      config.number("clip_high_threshold", 0).value_or(high)};
  if (bounds.low > bounds.high)
    throw ConfigError(fmt::format("clip_low_threshold {} is above clip_high_threshold {}",
                                  bounds.low, bounds.high));
  return bounds;
}

void no_fields(const FieldReader& config) { config.refuse_unknown({}); }

algo::Loss summed(const Tensor& loss_T) {
  const Tensor sum = loss_T.sum();
  return {sum, {{"loss", loss_T.detach().sum(at::kDouble).item<double>()}}};
}

Tensor ratio_of(const PolicyColumns& in) { return (in.logprob_T - in.old_T).exp(); }

algo::Loss cross_entropy(const PolicyColumns& in) { return summed(-in.weight_T * in.logprob_T); }

algo::Loss importance_sampling(const PolicyColumns& in) {
  return summed(-ratio_of(in) * in.advantage_T);
}

/// The lesser of a ratio's gain and the clipped one's.
Tensor clipped(const Tensor& ratio_T, const Tensor& advantage_T, const Bounds& bounds) {
  return -at::min(ratio_T * advantage_T, ratio_T.clamp(bounds.low, bounds.high) * advantage_T);
}

algo::Loss cispo(const PolicyColumns& in, const Bounds& bounds) {
  const Tensor ratio_T = ratio_of(in).detach().clamp(bounds.low, bounds.high);
  return summed(-ratio_T * in.logprob_T * in.advantage_T);
}

algo::Loss dro(const PolicyColumns& in, double beta) {
  const Tensor difference_T = (in.logprob_T - in.old_T) * in.trained_T.to(in.logprob_T.dtype());
  return summed(-(in.logprob_T * in.advantage_T - 0.5 * beta * difference_T * difference_T));
}

algo::Loss gspo(const PolicyColumns& in, const Bounds& bounds) {
  const Tensor own_T = in.logprob_T.detach();
  const Tensor mean_R = algo::mean_per_response(own_T - in.old_T, in.trained_T, in.starts);
  // Each token has its own gradient, and all of a response the same value.
  const Tensor ratio_T = (algo::expand_to_tokens(mean_R, in.starts) + in.logprob_T - own_T).exp();
  const Tensor mask_T = in.trained_T.to(ratio_T.dtype());
  return summed(clipped(ratio_T, in.advantage_T, bounds) * mask_T);
}

TokenLoss with_ratio(const std::string& name, std::function<algo::Loss(const PolicyColumns&)> of,
                     bool is_linear = true) {
  return {name,
          {.advantages = true, .log_probs = true},
          {.of = std::move(of), .is_linear_in_advantages = is_linear}};
}

}  // namespace

TokenLoss make_token_loss(const std::string& name, const FieldReader& config,
                          const train::TrainConfig& trainer) {
  if (name == "cross_entropy") {
    no_fields(config);
    return {name, {.weights = true}, {.of = cross_entropy, .is_linear_in_advantages = false}};
  }
  if (name == "importance_sampling") {
    no_fields(config);
    return with_ratio(name, importance_sampling);
  }
  if (name == "ppo") {
    const Bounds bounds = bounds_of(config, 0.8, 1.2);
    return with_ratio(name, [bounds](const PolicyColumns& in) {
      return summed(clipped(ratio_of(in), in.advantage_T, bounds));
    });
  }
  if (name == "cispo") {
    const Bounds bounds = bounds_of(config, 0, 4);
    return with_ratio(name, [bounds](const PolicyColumns& in) { return cispo(in, bounds); });
  }
  if (name == "dro") {
    static constexpr auto kFields = std::to_array<std::string_view>({"beta"});
    config.refuse_unknown(kFields);
    const double beta = config.number("beta", 0).value_or(0.05);
    return with_ratio(
        name, [beta](const PolicyColumns& in) { return dro(in, beta); }, beta == 0);
  }
  if (name == "gspo") {
    const Bounds bounds = bounds_of(config, 0.8, 1.2);
    return with_ratio(name, [bounds](const PolicyColumns& in) { return gspo(in, bounds); });
  }
  if (name == "policy") {
    no_fields(config);
    const algo::PolicyLossConfig& policy = trainer.policy;
    const bool has_divergence = policy.kl_loss && policy.kl_loss->coef != 0;
    return {name,
            {.advantages = true},
            {.of = [policy](const PolicyColumns& in) { return algo::policy_loss(policy, in); },
             .is_linear_in_advantages = policy.entropy_coef == 0 && !has_divergence,
             .needs_reference = policy.kl_loss.has_value()}};
  }
  throw ConfigError(fmt::format(
      "loss_fn {}: there are cross_entropy, importance_sampling, ppo, cispo, dro, gspo and policy "
      "(that of the flags); any other loss is two requests: log-probs, then cross_entropy with the "
      "weights -dLoss/dlogprob",
      name));
}

train::GivenLoss no_loss() {
  return {.of = [](const PolicyColumns& in) {
    return algo::Loss{at::zeros({}, in.logprob_T.options()), {}};
  }};
}

}  // namespace slime::tinker
