#pragma once

/// Refusal of a request, and its forms in the protocols' answers.
///
///   OpenAI     {"error": {"message", "type", "param", "code"}, "object": "error", "message", ...}
///   Anthropic  {"type": "error", "error": {"type", "message"}, "request_id"}
///
/// OpenAI's form repeats its members at the top, where SGLang's clients look for them. Clients
/// decide by status, code and words: those of a prompt that is too long make them compact their
/// history, 429 and 5xx make them try again.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "engine/client.h"

namespace slime::engine {

struct ApiErrorDetail {
  int status = 400;
  std::string code;   // OpenAI's word, "context_length_exceeded"; empty: the one of the status
  std::string param;  // path of the field, "messages[2].content"; empty: none
};

/// Thrown by the parsers of requests. As a ConfigError alone it is a 400.
class ApiError final : public ConfigError {
 public:
  ApiError(ApiErrorDetail detail, const std::string& message)
      : ConfigError(message), detail_(std::move(detail)) {}
  /// Any other ConfigError is a 400.
  static ApiError of(const ConfigError& error);
  /// A request that the engine refused or lost.
  static ApiError of(const FinishReason& failure);

  int status() const { return detail_.status; }
  const ApiErrorDetail& detail() const { return detail_; }

 private:
  ApiErrorDetail detail_;
};

/// "This model's maximum context length is 4096 tokens. However, the prompt has 5000 tokens, ...":
/// LiteLLM, LangChain, inspect and verifiers look for the first sentence, others for the code.
ApiError context_length_exceeded(std::int64_t context_length, std::int64_t num_prompt_tokens);
/// The same of a prompt that was measured in another way: "messages has 900000 bytes".
ApiError context_length_exceeded(std::int64_t context_length, std::string_view measured);

json::object openai_error(const ApiError& error);
json::object anthropic_error(const ApiError& error, std::string_view request_id);

}  // namespace slime::engine
