#pragma once

/// The fields of a GenerateRequest, listed once, in the order in which frames have them
/// (engine/remote/frames.cpp). A new field is a member in engine/client.h and a line here.

#include "engine/client.h"

namespace slime::engine {

/// Calls fn(member) for each. `sampling`: const or not.
template <typename Sampling, typename Fn>
void each_sampling_field(Sampling& sampling, const Fn& fn) {
  fn(sampling.max_new_tokens);
  fn(sampling.temperature);
  fn(sampling.top_p);
  fn(sampling.top_k);
  fn(sampling.min_p);
  fn(sampling.frequency_penalty);
  fn(sampling.presence_penalty);
  fn(sampling.repetition_penalty);
  fn(sampling.min_new_tokens);
  fn(sampling.stop);
  fn(sampling.stop_token_ids);
  fn(sampling.logit_bias);
  fn(sampling.ignore_eos);
  fn(sampling.skip_special_tokens);
  fn(sampling.spaces_between_special_tokens);
  fn(sampling.no_stop_trim);
  fn(sampling.sampling_seed);
}

/// Calls fn(member) for each. `request`: const or not.
template <typename Request, typename Fn>
void each_field(Request& request, const Fn& fn) {
  fn(request.rid);
  fn(request.input_ids);
  fn(request.media);
  fn(request.num_sampled);
  fn(request.cache_salt);
  fn(request.return_logprob);
  fn(request.logprob_start_len);
  fn(request.top_logprobs_num);
  fn(request.return_top_p_token_ids);
  fn(request.return_routed_experts);
  fn(request.routed_experts_start_len);
  fn(request.stream_interval);
  each_sampling_field(request.sampling, fn);
}

}  // namespace slime::engine
