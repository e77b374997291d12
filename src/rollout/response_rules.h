#pragma once

/// Rules of one response: sampling parameters and limits.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/json.h"
#include "engine/client.h"
#include "rollout/generate_fn.h"

namespace slime::rollout {

struct ResponseRules {
  engine::SamplingParams sampling;            // max_new_tokens is the limit of the whole response
  std::optional<int64_t> max_context_length;  // prompt and response together
  /// Draws the samples; empty: the engine does, in one turn.
  GenerateFn generate;
  uint64_t seed = 0;                   // draws are keyed by (seed, sample ordinal),
  bool draws_by_prompt = false;        // or by (seed, tokens of the prompt, index in the group)
  bool is_evaluation = false;          // no filter is asked, and sample hooks are told
  bool keeps_top_p_ids = false;        // record the nucleus of each token, for the trainer's replay
  bool keeps_top_p_log_probs = false;  // and the sampler's log-probs in it
  int64_t topk_log_probs = 0;  // record so many of the sampler's likeliest tokens of each; 0: none
  bool keeps_routed_experts = false;  // and the choices of the engine's routers
  /// Why a reward cannot be used; the sample has failed then. Nothing: it can. Empty: all can.
  std::function<std::optional<std::string>(const json::value& reward)> reward_problem;
};

}  // namespace slime::rollout
