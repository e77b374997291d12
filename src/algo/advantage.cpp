#include "algo/advantage.h"

#include <ATen/ATen.h>

#include <cmath>

#include "algo/packed.h"
#include "core/error.h"

namespace slime::algo {
namespace {

Tensor kl_or_zeros(const ScoredTokens& in) {
  const Tensor score_T = expand_to_tokens(in.score_R, in.starts);
  return in.kl_T.defined() ? in.kl_T.to(score_T.dtype()) : at::zeros_like(score_T);
}

/// x_t = in_t + factor * x_{t+1} inside each response, in double precision on the CPU.
/// sync: one short scan per rollout step.
Tensor scan_backward(const Tensor& in_T, const Tensor& starts, double factor) {
  Tensor scan_T =
      in_T.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true).contiguous();
  auto* x = scan_T.mutable_data_ptr<double>();
  const auto* start = starts.const_data_ptr<int64_t>();
  for (int64_t r = 0; r + 1 < starts.size(0); ++r) {
    for (int64_t t = start[r + 1] - 2; t >= start[r]; --t) x[t] += factor * x[t + 1];
  }
  return scan_T.to(in_T.options());
}

/// Index of the token of each response that gets the score: the last one, or the last trained one;
/// -1 if there is none.
std::vector<int64_t> score_positions(const ScoredTokens& in, bool trained_only) {
  const Tensor trained_T = in.trained_T.to(at::kCPU).contiguous();
  const auto* trained = trained_T.const_data_ptr<bool>();
  const auto* start = in.starts.const_data_ptr<int64_t>();
  std::vector<int64_t> positions;
  for (int64_t r = 0; r + 1 < in.starts.size(0); ++r) {
    int64_t t = start[r + 1] - 1;
    while (trained_only && t >= start[r] && !trained[t]) --t;
    positions.push_back(t >= start[r] ? t : -1);
  }
  return positions;
}

/// The score of each response on one of its tokens, zeros elsewhere.
Tensor place_scores(const ScoredTokens& in, bool trained_only) {
  const Tensor score_R = in.score_R.to(at::kCPU, at::kDouble).contiguous();
  const std::vector<int64_t> positions = score_positions(in, trained_only);
  Tensor placed_T = at::zeros({in.trained_T.size(0)}, at::kDouble);
  for (std::size_t r = 0; r < positions.size(); ++r) {
    if (positions[r] >= 0)
      placed_T.mutable_data_ptr<double>()[positions[r]] = score_R.const_data_ptr<double>()[r];
  }
  return placed_T.to(in.score_R.options());
}

/// V_{t+1} inside each response, 0 after its last token.
Tensor next_value(const Tensor& value_T, const Tensor& starts) {
  const int64_t num_tokens = value_T.size(0);
  if (num_tokens == 0) return value_T;
  Tensor next_T = at::cat({value_T.slice(0, 1), at::zeros({1}, value_T.options())});
  const auto* start = starts.const_data_ptr<int64_t>();
  for (int64_t r = 0; r + 1 < starts.size(0); ++r) {
    if (start[r + 1] > start[r]) next_T[start[r + 1] - 1] = 0;
  }
  return next_T;
}

}  // namespace

Advantages estimate(const GroupRelative&, const ScoredTokens& in) {
  const Tensor score_T = expand_to_tokens(in.score_R, in.starts);
  return {score_T, score_T};
}

Advantages estimate(const Gae& how, const ScoredTokens& in) {
  check(in.value_T.defined(), "ppo has values of a critic");
  const Tensor reward_T = place_scores(in, /*trained_only=*/false) - how.kl_coef * kl_or_zeros(in);
  const Tensor delta_T = reward_T + how.gamma * next_value(in.value_T, in.starts) - in.value_T;
  const Tensor advantage_T = scan_backward(delta_T, in.starts, how.gamma * how.lambda);
  return {advantage_T, advantage_T + in.value_T};
}

Advantages estimate(const ReinforcePlusPlus& how, const ScoredTokens& in) {
  const Tensor penalty_T = how.kl_coef * kl_or_zeros(in) * in.trained_T.to(in.score_R.dtype());
  const Tensor return_T =
      scan_backward(place_scores(in, /*trained_only=*/true) - penalty_T, in.starts, how.gamma);
  return {return_T, return_T};
}

Advantages estimate(const ReinforceBaseline& how, const ScoredTokens& in) {
  const Tensor advantage_T =
      expand_to_tokens(in.score_R, in.starts) - how.kl_coef * kl_or_zeros(in);
  return {advantage_T, advantage_T};
}

AdvantageFn make_advantage_fn(const AdvantageConfig& config) {
  return std::visit(
      [](const auto& how) -> AdvantageFn {
        return [how](const ScoredTokens& in) { return estimate(how, in); };
      },
      config);
}

double kl_coef_of(const AdvantageConfig& config) {
  return std::visit(
      [](const auto& how) {
        if constexpr (requires { how.kl_coef; }) return how.kl_coef;
        return 0.0;
      },
      config);
}

Tensor distilled_advantage(const Tensor& advantage_T, const Tensor& logprob_T,
                           const Tensor& teacher_T, double coef) {
  return advantage_T - coef * (logprob_T - teacher_T);
}

Moments& Moments::operator+=(const Moments& other) {
  count += other.count;
  sum += other.sum;
  squares += other.squares;
  return *this;
}

Moments moments_of(const Tensor& advantage_T, const Tensor& trained_T) {
  const Tensor mask_T = trained_T.to(at::kDouble);
  const Tensor value_T = advantage_T.to(at::kDouble) * mask_T;
  // sync: three numbers per rollout step.
  return {mask_T.sum().item<double>(), value_T.sum().item<double>(),
          value_T.square().sum().item<double>()};
}

Tensor whiten(const Tensor& advantage_T, const Moments& moments) {
  if (moments.count < 1) {
    throw ConfigError(
        "normalize-advantages: no response token of this step is trained, so there is no mean to "
        "remove");
  }
  const double mean = moments.sum / moments.count;
  double variance = std::max(0.0, moments.squares / moments.count - mean * mean);
  if (moments.count >= 2) variance *= moments.count / (moments.count - 1);
  return (advantage_T - mean) / std::sqrt(variance + 1e-8);
}

}  // namespace slime::algo
