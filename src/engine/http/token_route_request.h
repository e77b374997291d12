#pragma once

/// vLLM's token request (POST /inference/v1/generate) as our types: token ids in, token ids out.
///
///   {"token_ids": [72, 101], "sampling_params": {"max_tokens": 6, "logprobs": 1}, "request_id": "a"}
///
/// Trainers built on verifiers and prime-rl sample through it.

#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/request_body.h"
#include "engine/http/served_model.h"

namespace slime::engine {

struct TokenRouteCall {
  std::vector<GenerateRequest> requests;  // one per choice; their rids are request_id, or it and _i
  std::string request_id;
  std::string model;  // echoed
  bool streams = false;
  bool includes_usage = false;    // a last chunk with the totals
  bool continuous_usage = false;  // the totals so far in each chunk
  bool returns_prompt_ids = false;
  bool returns_text = false;              // output_mode "text"
  std::int64_t num_logprobs = -1;         // of the sampled token and its best rivals; -1: none
  std::int64_t num_prompt_logprobs = -1;  // the same of the prompt's tokens
};

/// Throws ConfigError with every problem, each naming its field.
TokenRouteCall parse_token_route_call(const json::object& body, const ServedModel& model);

}  // namespace slime::engine
