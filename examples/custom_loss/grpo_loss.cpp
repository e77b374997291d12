// GRPO's loss as a shared library: the numbers are those of --loss-type policy_loss.
//
//   g++ -O3 -shared -fPIC -I include examples/custom_loss/grpo_loss.cpp -o grpo_loss.so
//   slime train ... --loss-type custom_loss --custom-loss-library grpo_loss.so

#include <slime/loss.h>

#include <algorithm>
#include <cmath>

int32_t slime_loss_version(void) { return SLIME_LOSS_VERSION; }

int32_t slime_loss(const slime_loss_input* in, slime_loss_output* out) {
  const double low = 1 - in->flag(in->flags, "eps_clip", 0.2);
  const double high = 1 + in->flag(in->flags, "eps_clip_high", 0.2);
  const double entropy_coef = in->flag(in->flags, "entropy_coef", 0);
  double pg_loss = 0, clipped = 0, ppo_kl = 0, entropy = 0;
  for (int64_t t = 0; t < in->num_tokens; ++t) {
    const double weight = in->weights[t], advantage = in->advantages[t];
    const double kl = in->old_log_probs[t] - in->log_probs[t];
    const double ratio = std::exp(-kl);
    const double free = -ratio * advantage;
    const double bounded = -std::clamp(ratio, low, high) * advantage;
    pg_loss += weight * std::max(free, bounded);
    clipped += weight * (bounded > free);
    ppo_kl += weight * kl;
    entropy += weight * in->entropies[t];
    // Inside the clip both branches are the same function; where the bounded one wins it is constant.
    if (bounded <= free) out->log_prob_gradient[t] = weight * free;
    if (out->entropy_gradient) out->entropy_gradient[t] = -entropy_coef * weight;
  }
  out->loss = pg_loss - entropy_coef * entropy;
  out->metric(out->metrics, "pg_loss", pg_loss);
  out->metric(out->metrics, "pg_clipfrac", clipped);
  out->metric(out->metrics, "ppo_kl", ppo_kl);
  out->metric(out->metrics, "entropy_loss", entropy);
  return 0;
}
