/// POST /inference/v1/generate over HTTP.

#include <gtest/gtest.h>

#include "engine/http/test_server.h"
#include "engine/http/token_route_response.h"

namespace slime::engine {
namespace {

constexpr const char* kPath = "/inference/v1/generate";

TEST(TokenRoute, AnswersWithOneSpelledLogProbPerToken) {
  TestServer test("Hi");
  const json::value reply = test.post(kPath, R"({"model":"m","token_ids":[65,66,67],
      "request_id":"mine-1","return_token_ids":true,"sampling_params":{"max_tokens":8,"logprobs":1,
      "seed":5,"top_k":0,"min_tokens":1,"skip_special_tokens":false}})");
  EXPECT_EQ(at(reply, "/request_id"), "mine-1");
  EXPECT_EQ(at(reply, "/model"), "m");
  EXPECT_EQ(at(reply, "/prompt_token_ids"), json::value({65, 66, 67}));
  EXPECT_EQ(at(reply, "/usage"), parse_json(R"({"prompt_tokens":3,"completion_tokens":3,
      "total_tokens":6,"prompt_tokens_details":{"cached_tokens":0}})",
                                            "expected"));
  const json::value& choice = at(reply, "/choices/0");
  EXPECT_EQ(at(choice, "/token_ids"), json::value({72, 105, 127}));
  EXPECT_EQ(at(choice, "/finish_reason"), "stop");
  EXPECT_TRUE(at(choice, "/stop_reason").is_null());  // the model's own end
  EXPECT_EQ(at(choice, "/logprobs/content"), parse_json(R"([{"token":"token_id:72","logprob":-0.5},
      {"token":"token_id:105","logprob":-1.0},{"token":"token_id:127","logprob":-1.5}])",
                                                        "expected"));
  EXPECT_EQ(at(choice, "/weight_versions"),
            parse_json(R"([{"start":0,"end":3,"version":"default"}])", "expected"));
  const GenerateRequest request = test.engine.requests().at(0);
  EXPECT_EQ(request.rid, "mine-1");
  EXPECT_EQ(request.sampling.max_new_tokens, 8);
  EXPECT_EQ(request.sampling.min_new_tokens, 1);
  EXPECT_EQ(request.sampling.sampling_seed, 5u);
  EXPECT_EQ(request.sampling.top_k, -1);
  EXPECT_EQ(request.top_logprobs_num, 0);
}

TEST(TokenRoute, NamesTheStopThatTheRequestNamed) {
  TestServer test("Hello");
  const json::value by_id =
      test.post(kPath, R"({"token_ids":[65],"sampling_params":{"stop_token_ids":[127]}})");
  EXPECT_EQ(at(by_id, "/choices/0/stop_reason"), 127);
  EXPECT_TRUE(at(by_id, "/choices/0/logprobs").is_null());
  const json::value by_text =
      test.post(kPath, R"({"token_ids":[65],"output_mode":"text","sampling_params":{"stop":"l"}})");
  EXPECT_EQ(at(by_text, "/choices/0/stop_reason"), "l");
  EXPECT_EQ(at(by_text, "/choices/0/text"), "He");
  const json::value kept = test.post(kPath, R"({"token_ids":[65],"output_mode":"text",
      "sampling_params":{"stop":["l"],"include_stop_str_in_output":true}})");
  EXPECT_EQ(at(kept, "/choices/0/text"), "Hel");
}

TEST(TokenRoute, SeveralChoicesHaveSeedsAndRidsOfTheirOwn) {
  TestServer test("Hi");
  const json::value reply =
      test.post(kPath, R"({"token_ids":[65],"request_id":"r","sampling_params":{"n":3,"seed":7}})");
  ASSERT_EQ(at(reply, "/choices").get_array().size(), 3u);
  EXPECT_EQ(at(reply, "/choices/2/index"), 2);
  EXPECT_EQ(at(reply, "/usage/prompt_tokens"), 1);
  EXPECT_EQ(at(reply, "/usage/completion_tokens"), 9);
  EXPECT_EQ(test.engine.requests().at(2).rid, "r_2");
  EXPECT_EQ(test.engine.requests().at(2).sampling.sampling_seed, 9u);
}

TEST(TokenRoute, ScoresThePromptOnRequest) {
  TestServer test("Hi");
  const json::value reply =
      test.post(kPath, R"({"token_ids":[65,66],"sampling_params":{"prompt_logprobs":0}})");
  EXPECT_EQ(at(reply, "/prompt_logprobs"),
            parse_json(R"([null,{"66":{"logprob":-0.25,"rank":null,"decoded_token":null}}])",
                       "expected"));
  EXPECT_TRUE(at(reply, "/choices/0/logprobs").is_null());
}

TEST(TokenRoute, AStreamsChunksAddUpToTheWholeAnswer) {
  TestServer test("Hello");
  const std::string fields = R"("token_ids":[65],"request_id":"r","return_token_ids":true,
      "sampling_params":{"logprobs":0})";
  const json::value whole = test.post(kPath, "{" + fields + "}");
  const auto frames = frames_of(
      test.call("POST", kPath,
                "{" + fields + R"(,"stream":true,"stream_options":{"include_usage":true}})")
          .body);
  ASSERT_GE(frames.size(), 2u);
  EXPECT_EQ(at(frames.front(), "/prompt_token_ids"), json::value({65}));
  EXPECT_EQ(at(frames.back(), "/usage"), at(whole, "/usage"));
  json::array ids, entries;
  for (std::size_t i = 0; i + 1 < frames.size(); ++i) {
    for (const json::value& id : at(frames[i], "/choices/0/token_ids").get_array())
      ids.push_back(id);
    for (const json::value& entry : at(frames[i], "/choices/0/logprobs/content").get_array())
      entries.push_back(entry);
    EXPECT_EQ(at(frames[i], "/choices/0/finish_reason").is_null(), i + 2 < frames.size());
  }
  EXPECT_EQ(ids, at(whole, "/choices/0/token_ids"));
  EXPECT_EQ(entries, at(whole, "/choices/0/logprobs/content"));
}

TEST(TokenRoute, NamesTheFieldsThatAreWrong) {
  TestServer test("Hi");
  const std::string long_prompt = json_text(json::value_from(std::vector<int>(1000, 65)));
  const std::pair<std::string, const char*> cases[] = {
      {R"({})", "token_ids is missing"},
      {R"({"token_ids":[]})", "token_ids must not be empty"},
      {R"({"token_ids":[1000000000]})", "token_ids"},
      {R"({"token_ids":[65],"sampling_params":{"temperature":-1}})", "sampling_params.temperature"},
      {R"({"token_ids":[65],"sampling_params":{"max_token":1}})", "did you mean max_tokens?"},
      {R"({"token_ids":[65],"sampling_params":{"logprobs":-2}})", "sampling_params.logprobs"},
      {R"({"token_ids":[65],"output_mode":"derender"})", "output_mode"},
      {R"({"token_ids":[65],"features":{"mm_hashes":{"image":["a"]}}})", "features is refused"},
      {R"({"token_ids":)" + long_prompt + "}", "This model's maximum context length is 1000"},
  };
  for (const auto& [body, message] : cases) {
    const auto response = test.call("POST", kPath, body);
    EXPECT_EQ(response.status, 400) << body;
    const json::value reply = parse_json(response.body, "reply");
    EXPECT_NE(at(reply, "/error/message").get_string().find(message), std::string::npos)
        << response.body;
  }
}

TEST(TokenRouteChoice, TellsTheBestRivalsAfterTheSampledToken) {
  TokenRouteCall call{.num_logprobs = 2};
  call.requests.emplace_back();
  const ServedModel model;
  TokenRouteChoice choice(call, 0, model);
  GenerateUpdate update;
  update.output_ids = {7};
  update.output_log_probs = {-2};
  update.output_top = {{{-0.25F, 5}, {-0.5F, 6}}};
  choice.add(update);
  std::string out;
  choice.append_to(out, nullptr);
  EXPECT_EQ(at(parse_json(out, "choice"), "/logprobs/content/0"),
            parse_json(R"({"token":"token_id:7","logprob":-2.0,"top_logprobs":[
                {"token":"token_id:7","logprob":-2.0},{"token":"token_id:5","logprob":-0.25}]})",
                       "expected"));
}

TEST(TokenRouteChoice, TellsTheRoutingAndTheKeptTokensAtTheEnd) {
  TokenRouteCall call;
  call.requests.emplace_back().routed_experts_start_len = 4;
  ServedModel model;
  model.returns_routed_experts = true;
  model.routed_layers = 1;
  model.experts_per_token = 2;
  TokenRouteChoice choice(call, 0, model);
  GenerateUpdate update;
  update.output_ids = {7, 8};
  update.top_p_ids = {7, 9, 8};
  update.top_p_counts = {2, 1};
  update.routed_experts = {1, 2, 3, 4};  // two rows
  update.finish.emplace();
  choice.add(update);
  std::string out;
  choice.append_to(out, nullptr);
  const json::value told = parse_json(out, "choice");
  EXPECT_EQ(at(told, "/sampling_mask"), parse_json("[[7,9],[8]]", "expected"));
  EXPECT_EQ(at(told, "/routed_experts"), parse_json(R"({"data":"AQIDBA==","shape":[2,1,2],
      "dtype":"uint8","start":4})",
                                                    "expected"));
  EXPECT_NE(out.find("\"routed_experts\":{\"data\":\""),
            std::string::npos);  // what clients cut out
}

}  // namespace
}  // namespace slime::engine
