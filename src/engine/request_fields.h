#pragma once

/// The fields of a GenerateRequest, listed once, in the order in which frames have them
/// (engine/remote/frames.cpp). A new field is a member in engine/client.h and a line here; one of
/// `sampling` is a line in engine/sampling_fields.h.

#include "engine/client.h"
#include "engine/sampling_fields.h"

namespace slime::engine {

/// Calls fn(member) for each. `request`: const or not.
template <typename Request, typename Fn>
void each_field(Request& request, const Fn& fn) {
  fn(request.rid);
  fn(request.input_ids);
  fn(request.media);
  fn(request.num_sampled);
  fn(request.adapter);
  fn(request.cache_salt);
  fn(request.return_logprob);
  fn(request.logprob_start_len);
  fn(request.top_logprobs_num);
  fn(request.token_ids_logprob);
  fn(request.return_free_logprobs);
  fn(request.return_top_p_token_ids);
  fn(request.return_top_p_log_probs);
  fn(request.return_routed_experts);
  fn(request.routed_experts_start_len);
  fn(request.stream_interval);
  fn(request.thoughts.opening);
  fn(request.thoughts.closing);
  fn(request.thoughts.are_open);
  fn(request.grammar_field);
  each_sampling_field(request.sampling, [&](const SamplingField&, auto& member) { fn(member); });
}

}  // namespace slime::engine
