#pragma once

/// Generate function type: replaces one turn of the engine by a function that may take many turns,
/// use tools, and make several samples of one.

#include <functional>
#include <stop_token>

#include "core/made_samples.h"
#include "core/sample.h"
#include "engine/client.h"
#include "rollout/answer.h"

namespace slime::rollout {

struct GenerateCall {
  /// Pending, with the prompt's tokens; or aborted, with what it had sampled in an earlier call.
  Sample sample;
  engine::SamplingParams sampling;     // max_new_tokens is the limit of the whole response
  bool keeps_top_p_ids = false;        // the nucleus of each token is wanted
  bool keeps_top_p_log_probs = false;  // and the sampler's log-probs in it
  int64_t topk_log_probs = 0;          // so many of the sampler's likeliest tokens of each; 0: none
};

/// Draws a sample to its end (completed, truncated), or, once functions are told to come to an end
/// (RolloutHooks::abort_functions), as far as it is (aborted). The answer has one sample or more:
/// parts of one execution, which have a common rollout_id and the ordinal of the sample.
using GenerateFn = std::function<void(GenerateCall, std::stop_token, AnswerFn<MadeSamples>)>;

}  // namespace slime::rollout
