#pragma once

/// Request of /v1/completions: prompts as text or tokens, continued as they are.

#include <optional>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/openai_fields.h"
#include "engine/http/openai_logprobs.h"

namespace slime::engine {

struct CompletionsCall {
  std::vector<GenerateRequest> requests;  // choice i answers requests[i]: prompt i / n, copy i % n
  OpenAiForm form;
  /// One per prompt where they are part of the answer: `echo`.
  std::optional<std::vector<EchoedPrompt>> echoed;
  std::vector<std::string> ignored_fields;
};

/// Throws ConfigError with every problem, each naming its field.
CompletionsCall parse_completions(const json::object& body, const ServedModel& model);

}  // namespace slime::engine
