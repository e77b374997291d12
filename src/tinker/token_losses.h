#pragma once

/// Losses that requests name, per token and summed: those of Tinker, and `policy`, the loss that the flags of
/// `slime train` describe.
///
/// With lp the log-prob of a target, q the `logprobs` of the request, A its advantages, w its weights and
/// ratio = exp(lp - q):
///
///   cross_entropy         -w lp
///   importance_sampling   -ratio A
///   ppo                   -min(ratio A, clip(ratio, low, high) A)              0.8, 1.2
///   cispo                 -constant(clip(ratio, low, high)) lp A               0, 4
///   dro                   -(lp A - beta/2 (lp - q)^2)                          0.05
///   gspo                  ppo with the geometric mean of a response's ratios   0.8, 1.2

#include <string>

#include "core/field_reader.h"
#include "train/given_pass.h"
#include "train/trainer.h"

namespace slime::tinker {

/// Which columns of a datum a loss needs, besides target_tokens.
struct LossNeeds {
  bool weights = false;
  bool advantages = false;
  bool log_probs = false;  // of the sampler
};

struct TokenLoss {
  std::string name;
  LossNeeds needs;
  train::GivenLoss loss;
};

/// Of `loss_fn` and the fields of `loss_fn_config`; `trainer`: what `policy` is. Throws ConfigError for a
/// name, field or bound that there is not.
TokenLoss make_token_loss(const std::string& name, const FieldReader& config,
                          const train::TrainConfig& trainer);

/// Log-probs alone.
train::GivenLoss no_loss();

}  // namespace slime::tinker
