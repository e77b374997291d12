#include "engine/http/api_error.h"

#include <fmt/format.h>

#include "engine/http/abort_status.h"

namespace slime::engine {
namespace {

/// What the protocols call an HTTP status.
struct StatusWords {
  int status;
  const char* openai_type;
  const char* openai_code;
  const char* sglang_type;
  const char* anthropic_type;
};

constexpr StatusWords kWords[] = {
    {400, "invalid_request_error", "invalid_value", "BadRequestError", "invalid_request_error"},
    {401, "invalid_request_error", "invalid_api_key", "AuthenticationError",
     "authentication_error"},
    {403, "invalid_request_error", "permission_denied", "PermissionDeniedError",
     "permission_error"},
    {404, "invalid_request_error", "not_found", "NotFoundError", "not_found_error"},
    {409, "invalid_request_error", "conflict", "ConflictError", "invalid_request_error"},
    {413, "invalid_request_error", "request_too_large", "BadRequestError", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_exceeded", "RateLimitError", "rate_limit_error"},
    {499, "invalid_request_error", "request_cancelled", "RequestCancelledError", "api_error"},
    {501, "invalid_request_error", "not_implemented", "NotImplementedError",
     "invalid_request_error"},
    {503, "server_error", "overloaded", "ServiceUnavailableError", "overloaded_error"},
    {504, "server_error", "timeout", "GatewayTimeoutError", "timeout_error"},
    {507, "server_error", "out_of_memory", "InternalServerError", "api_error"},
};
constexpr StatusWords kAnyOther = {500, "server_error", "server_error", "InternalServerError",
                                   "api_error"};

const StatusWords& words_of(int status) {
  for (const StatusWords& words : kWords) {
    if (words.status == status) return words;
  }
  return kAnyOther;
}

json::value text_or_null(std::string_view text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

/// Anthropic's clients know a prompt that is too long by these words.
std::string anthropic_message(const ApiError& error) {
  const bool is_too_long = error.detail().code == "context_length_exceeded";
  return (is_too_long ? "prompt is too long: " : "") + std::string(error.what());
}

}  // namespace

ApiError ApiError::of(const ConfigError& error) {
  if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
  return ApiError({}, error.what());
}

ApiError ApiError::of(const FinishReason& failure) {
  return ApiError({.status = http_status_of(failure.cause)}, failure.message);
}

ApiError context_length_exceeded(std::int64_t context_length, std::int64_t num_prompt_tokens) {
  return context_length_exceeded(
      context_length,
      fmt::format("the prompt has {} tokens, and one more is for the response", num_prompt_tokens));
}

ApiError context_length_exceeded(std::int64_t context_length, std::string_view measured) {
  return ApiError({.code = "context_length_exceeded"},
                  fmt::format("This model's maximum context length is {} tokens. However, {}. "
                              "Please reduce the length of the prompt.",
                              context_length, measured));
}

json::object openai_error(const ApiError& error) {
  const StatusWords& words = words_of(error.status());
  const std::string& code = error.detail().code;
  const json::value param = text_or_null(error.detail().param);
  return {{"error",
           {{"message", error.what()},
            {"type", words.openai_type},
            {"param", param},
            {"code", code.empty() ? words.openai_code : code}}},
          {"object", "error"},
          {"message", error.what()},
          {"type", words.sglang_type},
          {"param", param},
          {"code", error.status()}};
}

json::object anthropic_error(const ApiError& error, std::string_view request_id) {
  return {
      {"type", "error"},
      {"error",
       {{"type", words_of(error.status()).anthropic_type}, {"message", anthropic_message(error)}}},
      {"request_id", text_or_null(request_id)}};
}

}  // namespace slime::engine
