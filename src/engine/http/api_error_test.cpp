#include "engine/http/api_error.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

const json::value& at(const json::object& object, std::string_view member, std::string_view inner) {
  return object.at(member).at(inner);
}

TEST(ApiError, APromptThatIsTooLongHasTheWordsOfBothProtocols) {
  const ApiError error = context_length_exceeded(4096, 5000);
  const json::object openai = openai_error(error);
  EXPECT_EQ(at(openai, "error", "code"), "context_length_exceeded");
  EXPECT_EQ(at(openai, "error", "message"),
            "This model's maximum context length is 4096 tokens. However, the prompt has 5000 "
            "tokens, and one more is for the response. Please reduce the length of the prompt.");
  const json::object anthropic = anthropic_error(error, "req_1");
  EXPECT_EQ(at(anthropic, "error", "type"), "invalid_request_error");
  EXPECT_TRUE(std::string_view(at(anthropic, "error", "message").get_string())
                  .starts_with("prompt is too long: This model's maximum"));
  EXPECT_EQ(anthropic.at("request_id"), "req_1");
}

TEST(ApiError, AnEngineThatIsFullSaysSoInEachProtocolsWord) {
  const ApiError error =
      ApiError::of(aborted(FinishReason::Cause::kQueueFull, "8 requests wait already"));
  EXPECT_EQ(error.status(), 429);
  EXPECT_EQ(at(openai_error(error), "error", "type"), "rate_limit_error");
  EXPECT_EQ(at(openai_error(error), "error", "code"), "rate_limit_exceeded");
  EXPECT_EQ(at(anthropic_error(error, ""), "error", "type"), "rate_limit_error");
}

TEST(ApiError, AnyConfigErrorIsABadRequestAndAnApiErrorStaysWhatItIs) {
  const ApiError plain = ApiError::of(ConfigError("n must be at least 1"));
  EXPECT_EQ(plain.status(), 400);
  EXPECT_EQ(at(openai_error(plain), "error", "code"), "invalid_value");
  EXPECT_TRUE(at(openai_error(plain), "error", "param").is_null());
  const ApiError thrown({.status = 404, .code = "model_not_found", .param = "model"}, "no model");
  const ApiError caught = ApiError::of(static_cast<const ConfigError&>(thrown));
  EXPECT_EQ(at(openai_error(caught), "error", "param"), "model");
  EXPECT_EQ(openai_error(caught).at("code"), 404);
}

}  // namespace
}  // namespace slime::engine
