#pragma once

/// OpenAI's chat and completion requests as our types, with SGLang's extra keys (reference
/// sglang.md 1.6).

#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/served_model.h"

namespace slime::engine {

struct OpenAiCall {
  std::vector<GenerateRequest> requests;  // choice i answers requests[i]: prompt i / n, copy i % n
  std::size_t n = 1;
  std::string model;  // echoed
  bool is_chat = true;
  bool streams = false;
  bool includes_usage = false;  // a last chunk with the totals
  bool returns_logprobs = false;
  std::int64_t num_top_logprobs = 0;
  bool echoes = false;  // completions: the prompt's text before the response's
  bool returns_meta_info = false;
  bool returns_token_ids = false;
  bool returns_prompt_token_ids = false;
  std::vector<std::string> prompt_texts;  // one per prompt, only when echoed
};

/// Throw ConfigError with every problem, each naming its field.
OpenAiCall parse_chat_call(const json::object& body, const ServedModel& model);
OpenAiCall parse_completion_call(const json::object& body, const ServedModel& model);

}  // namespace slime::engine
