#include <gtest/gtest.h>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(TextRoutes, TextBecomesTokensAndTextAgain) {
  TestServer test("Hi");
  const json::value one = test.post("/tokenize", R"({"model":"ascii","prompt":"Hi"})");
  EXPECT_EQ(at(one, "/tokens"), json::value({72, 105}));
  EXPECT_EQ(at(one, "/count"), 2);
  EXPECT_EQ(at(one, "/max_model_len"), 1000);
  const json::value many =
      test.post("/v1/tokenize", R"({"prompt":["a","bc"],"add_special_tokens":false})");
  EXPECT_EQ(at(many, "/tokens/1"), json::value({98, 99}));
  EXPECT_EQ(at(many, "/count"), json::value({1, 2}));
  EXPECT_EQ(at(test.post("/tokenize", R"({"prompt":""})"), "/count"), 0);
  EXPECT_EQ(at(test.post("/detokenize", R"({"tokens":[72,105]})"), "/text"), "Hi");
  EXPECT_EQ(at(test.post("/v1/detokenize", R"({"tokens":[]})"), "/text"), "");
  const json::value both = test.post("/detokenize", R"({"tokens":[[72],[105,33]]})");
  EXPECT_EQ(at(both, "/text"), json::value({"H", "i!"}));
  EXPECT_EQ(at(both, "/prompt"), at(both, "/text")) << "vLLM's name for it";
}

TEST(TextRoutes, MessagesBecomeThePromptOfTheChat) {
  TestServer test("Hi");
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"}])";
  const json::value chat = test.post("/tokenize", "{" + messages + R"(,"return_token_strs":true})");
  const json::value asked =
      test.post("/v1/chat/completions",
                "{" + messages + R"(,"max_tokens":1,"return_prompt_token_ids":true})");
  EXPECT_EQ(at(chat, "/count"), at(asked, "/usage/prompt_tokens"));
  EXPECT_EQ(at(chat, "/token_strs").as_array().size(), at(chat, "/tokens").as_array().size());
  const json::value bare =
      test.post("/tokenize", "{" + messages + R"(,"add_generation_prompt":false})");
  EXPECT_NE(at(bare, "/tokens"), at(chat, "/tokens"));
}

TEST(TextRoutes, WhatCannotBeTokenisedIsRefusedWithItsReason) {
  TestServer test("Hi");
  const auto refused = [&](const char* path, const std::string& body, const char* reason) {
    const net::HttpResponse response = test.call("POST", path, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_NE(response.body.find(reason), std::string::npos) << response.body;
  };
  refused("/tokenize", "{}", "prompt is missing");
  refused("/tokenize", R"({"messages":7})", "messages must be a list");
  refused("/tokenize", R"({"messages":[{"role":"user"}]})", "messages[0].content");
  refused("/tokenize", R"({"prompt":"a","messages":[]})", "are two prompts");
  refused("/tokenize", R"({"prompt":7})", "prompt must be a string or a list of strings");
  refused("/tokenize", R"({"prompt":"a","add_special_token":true})", "did you mean");
  refused("/tokenize", R"({"prompt":")" + std::string(200'000, 'a') + "\"}",
          "maximum context length is 1000");
  refused("/detokenize", R"({"tokens":[128]})", "not 128 at index 0");
}

}  // namespace
}  // namespace slime::engine
