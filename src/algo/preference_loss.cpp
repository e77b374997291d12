#include "algo/preference_loss.h"

#include <ATen/ATen.h>

#include "algo/packed.h"
#include "core/error.h"

namespace slime::algo {

Loss preference_loss(const Preference& how, const PreferenceColumns& in) {
  check(in.ref_T.defined(), "preferences have log-probs of the reference");
  check((in.starts.size(0) - 1) % 2 == 0, "responses of a preference batch come in pairs");
  const Tensor mask_T = in.trained_T.to(in.logprob_T.dtype());
  const auto by_side = [&](const Tensor& x_T) {
    return sum_per_response(x_T * mask_T, in.starts).view({-1, 2});
  };
  const Tensor policy_P2 = by_side(in.logprob_T);
  const Tensor reward_P2 = how.beta * (policy_P2 - by_side(in.ref_T));
  const Tensor margin_P = reward_P2.select(1, 0) - reward_P2.select(1, 1);
  Tensor loss_P = -at::log_sigmoid(margin_P);
  if (how.label_smoothing != 0) {
    loss_P = (1 - how.label_smoothing) * loss_P - how.label_smoothing * at::log_sigmoid(-margin_P);
  }
  // sync: a handful of numbers per micro-batch, after its forward pass.
  const auto sum_of = [](const Tensor& x) { return x.detach().sum(at::kDouble).item<double>(); };
  Loss loss{loss_P.sum(), {}};
  loss.metrics["loss"] = sum_of(loss_P);
  loss.metrics["rewards/chosen"] = sum_of(reward_P2.select(1, 0));
  loss.metrics["rewards/rejected"] = sum_of(reward_P2.select(1, 1));
  loss.metrics["rewards/margins"] = sum_of(margin_P);
  loss.metrics["rewards/accuracies"] = sum_of(margin_P > 0);
  loss.metrics["logps/chosen"] = sum_of(policy_P2.select(1, 0));
  loss.metrics["logps/rejected"] = sum_of(policy_P2.select(1, 1));
  return loss;
}

}  // namespace slime::algo
