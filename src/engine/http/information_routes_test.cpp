/// Routes that only look.

#include <gtest/gtest.h>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(InformationRoutes, HealthIsAMatterOfProgress) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("GET", "/health").status, 200);
  test.engine.seconds_without_progress = 301;
  EXPECT_EQ(test.call("GET", "/health").status, 503);
  EXPECT_EQ(test.call("GET", "/health_generate").status, 503);
}

TEST(InformationRoutes, DescribeModelServerAndLoad) {
  TestServer test("Hi");
  const auto get = [&](const char* path) { return parse_json(test.call("GET", path).body, path); };
  EXPECT_EQ(at(get("/model_info"), "/model_type"), "fake");
  EXPECT_EQ(at(get("/get_model_info"), "/architectures/0"), "FakeForCausalLM");
  EXPECT_EQ(at(get("/server_info"), "/tp_size"), 1);
  EXPECT_EQ(at(get("/get_server_info"), "/internal_states/0/num_running_reqs"), 0);
  EXPECT_EQ(at(get("/v1/loads?include=core"), "/loads/0/num_waiting_reqs"), 0);
  EXPECT_EQ(at(get("/get_load"), "/0/num_reqs"), 0);
  EXPECT_EQ(at(get("/v1/models"), "/data/0/max_model_len"), 1000);
  EXPECT_NE(
      test.call("GET", "/metrics").body.find("sglang:num_running_reqs{model_name=\"ascii\"} 0\n"),
      std::string::npos);
}

TEST(InformationRoutes, TextBecomesTokensAndTextAgain) {
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
}

TEST(InformationRoutes, WhatCannotBeTokenisedIsRefusedWithItsReason) {
  TestServer test("Hi");
  const auto refused = [&](const char* path, const std::string& body, const char* reason) {
    const net::HttpResponse response = test.call("POST", path, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_NE(response.body.find(reason), std::string::npos) << response.body;
  };
  refused("/tokenize", "{}", "prompt is missing");
  refused("/tokenize", R"({"prompt":7})", "prompt must be a string or a list of strings");
  refused("/tokenize", R"({"prompt":"a","add_special_token":true})", "did you mean");
  refused("/tokenize", R"({"prompt":")" + std::string(200'000, 'a') + "\"}",
          "maximum context length is 1000");
  refused("/detokenize", R"({"tokens":[128]})", "not 128 at index 0");
}

}  // namespace
}  // namespace slime::engine
