/// /v1/chat/completions and /v1/completions over HTTP.

#include <gtest/gtest.h>

#include <chrono>
#include <tuple>

#include "engine/http/completions_answer.h"
#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(ChatRoute, RendersTheTemplateAndAnswers) {
  TestServer test("Hi");
  const json::value reply =
      test.post("/v1/chat/completions", R"({"model":"m","messages":[{"role":"user","content":"Q"}],
      "chat_template_kwargs":{"enable_thinking":false},"tools":[{"type":"function","function":{"name":"f"}}],"seed":3,"max_tokens":99,
      "max_completion_tokens":5,"logprobs":true,"top_logprobs":1})");
  EXPECT_EQ(at(reply, "/object"), "chat.completion");
  EXPECT_EQ(at(reply, "/model"), "m");
  EXPECT_EQ(at(reply, "/choices/0/message/content"), "Hi");
  EXPECT_EQ(at(reply, "/choices/0/finish_reason"), "stop");
  EXPECT_EQ(at(reply, "/choices/0/matched_stop"), 127);
  EXPECT_EQ(at(reply, "/choices/0/logprobs/content/1/token"), "i");
  EXPECT_EQ(at(reply, "/choices/0/logprobs/content/1/logprob"), -1.0);
  EXPECT_EQ(at(reply, "/choices/0/logprobs/content/1/top_logprobs/0/bytes"), json::value({105}));
  EXPECT_EQ(at(reply, "/usage/completion_tokens"), 3);
  EXPECT_EQ(at(reply, "/metadata/weight_version"), "default");
  const GenerateRequest request = test.engine.requests().at(0);
  EXPECT_EQ(request.sampling.max_new_tokens, 5);
  EXPECT_EQ(request.sampling.sampling_seed, 3u);
  EXPECT_EQ(
      test.tokenizer->decode(request.input_ids, false),
      R"([{"role":"user","content":"Q"}]{"enable_thinking":false,"tools":[{"type":"function","function":{"name":"f"}}],)"
      R"("continue_final_message":false,"add_generation_prompt":true})");
}

TEST(ChatRoute, StreamsDeltas) {
  TestServer test("Hello");
  const auto frames = frames_of(
      test.call(
              "POST", "/v1/chat/completions",
              R"({"messages":[{"role":"user","content":[{"type":"text","text":"Q"}]}],"stream":true,"n":2,
          "stream_options":{"include_usage":true}})")
          .body);
  ASSERT_GE(frames.size(), 4u);
  EXPECT_EQ(at(frames[0], "/choices/0/delta/role"), "assistant");
  std::string texts[2];
  int num_finished = 0;
  for (std::size_t i = 0; i + 1 < frames.size(); ++i) {
    EXPECT_EQ(at(frames[i], "/object"), "chat.completion.chunk");
    const json::object& choice = at(frames[i], "/choices/0").get_object();
    const auto index = static_cast<std::size_t>(choice.at("index").get_int64());
    if (const json::value* content = choice.at("delta").get_object().if_contains("content")) {
      texts[index] += content->get_string();
    }
    if (!choice.at("finish_reason").is_null()) ++num_finished;
  }
  EXPECT_EQ(texts[0], "Hello");
  EXPECT_EQ(texts[1], "Hello");
  EXPECT_EQ(num_finished, 2);
  EXPECT_TRUE(at(frames.back(), "/choices").get_array().empty());
  EXPECT_EQ(at(frames.back(), "/usage/completion_tokens"), 12);
}

TEST(ChatRoute, NamesTheFieldsThatAreWrong) {
  TestServer test("Hi");
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":[{"content":"x"}]})", "role"},
      {R"({"messages":[{"role":"user","content":7}]})", "content"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "content parts"},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required"})", "tool_choice"},
      {R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"xml"}})",
       "response_format.type"},
      {R"({"messages":[{"role":"user","content":"x"}],"n":0})", "n must"},
      {R"({"messages":[{"role":"user","content":"x"}],"top_logprobs":-1})", "top_logprobs"},
      {R"({"messages":[{"role":"user","content":"x"}],"logprobs":5})", "logprobs"},
      {R"({"messages":[{"role":"user","content":"x"}],"temperature":-1})", "temperature"},
      {R"({"messages":[{"role":"user","content":"x"}],"max_tokens":"many"})", "max_tokens"},
  };
  for (const auto& [body, name] : cases) {
    const auto response = test.call("POST", "/v1/chat/completions", body);
    EXPECT_EQ(response.status, 400) << body;
    const json::value reply = parse_json(response.body, "reply");
    EXPECT_EQ(at(reply, "/object"), "error");
    EXPECT_NE(std::string(at(reply, "/message").get_string()).find(name), std::string::npos)
        << response.body;
  }
}

TEST(CompletionRoute, StreamedOffsetsCountTheEchoedPrompt) {
  TestServer test("Hi");
  json::array tokens, offsets;
  std::string text;
  for (const json::value& frame :
       frames_of(test.call("POST", "/v1/completions",
                           R"({"prompt":"ab","echo":true,"logprobs":1,"stream":true})")
                     .body)) {
    text += at(frame, "/choices/0/text").get_string();
    for (const json::value& token : at(frame, "/choices/0/logprobs/tokens").get_array())
      tokens.push_back(token);
    for (const json::value& offset : at(frame, "/choices/0/logprobs/text_offset").get_array())
      offsets.push_back(offset);
  }
  EXPECT_EQ(text, "abHi");
  EXPECT_EQ(tokens, json::array({"a", "b", "H", "i", "<|im_end|>"}));
  EXPECT_EQ(offsets, json::array({0, 1, 2, 3, 4}));
}

TEST(CompletionRoute, AStreamWithLogProbsTakesTheSameTimeForEachToken) {
  const auto tokenizer = make_ascii_tokenizer();
  CompletionsCall call;
  call.form.streams = call.form.returns_logprobs = true;
  call.requests.emplace_back();
  CompletionsChoice choice(call, 0, *tokenizer);
  const auto start = std::chrono::steady_clock::now();
  GenerateUpdate update;
  update.output_ids = {'a'};
  update.output_log_probs = {-0.5F};
  constexpr int kTokens = 40'000;  // decoding all earlier ones each time would take minutes
  for (int i = 0; i < kTokens; ++i) {
    choice.add(update);
    const auto chunk = choice.next_chunk();
    ASSERT_TRUE(chunk.has_value());
    if (i == kTokens - 1) {
      EXPECT_EQ(chunk->at("logprobs").at("text_offset"), json::value({kTokens - 1}));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(CompletionRoute, AnswersStringsListsAndTokens) {
  TestServer test("Hi");
  const json::value one =
      test.post("/v1/completions", R"({"prompt":"ab","echo":true,"logprobs":1})");
  EXPECT_EQ(at(one, "/object"), "text_completion");
  EXPECT_EQ(at(one, "/choices/0/text"), "abHi");
  EXPECT_EQ(at(one, "/choices/0/logprobs/tokens"), json::value({"a", "b", "H", "i", "<|im_end|>"}));
  EXPECT_EQ(at(one, "/choices/0/logprobs/token_logprobs"),
            parse_json("[null,-0.25,-0.5,-1.0,-1.5]", "expected"));
  EXPECT_EQ(at(one, "/choices/0/logprobs/text_offset"), json::value({0, 1, 2, 3, 4}));
  EXPECT_EQ(at(one, "/choices/0/logprobs/top_logprobs/2/H"), -0.5);
  EXPECT_EQ(test.engine.requests().at(0).sampling.max_new_tokens, 16);

  EXPECT_EQ(at(test.post("/v1/completions", R"({"prompt":[65,66]})"), "/usage/prompt_tokens"), 2);
  const json::value many =
      test.post("/v1/completions", R"({"prompt":["a","b"],"n":2,"max_tokens":1})");
  ASSERT_EQ(at(many, "/choices").get_array().size(), 4u);
  EXPECT_EQ(at(many, "/choices/3/index"), 3);
  EXPECT_EQ(at(many, "/choices/3/finish_reason"), "length");
  EXPECT_EQ(at(many, "/usage/prompt_tokens"), 2);
  EXPECT_EQ(at(test.post("/v1/completions", R"({"prompt":[[65],[66]]})"), "/choices/1/text"), "Hi");
  EXPECT_EQ(test.call("POST", "/v1/completions", R"({"prompt":[]})").status, 400);
  EXPECT_EQ(test.call("POST", "/v1/completions", R"({"prompt":""})").status, 400);
}

TEST(OpenAiRoutes, RefuseInBothFormsThatClientsRead) {
  TestServer test("Hi");
  const std::string ids = json_text(json::value_from(std::vector<int>(1000, 65)));
  const auto response = test.call("POST", "/v1/completions", R"({"prompt":)" + ids + "}");
  EXPECT_EQ(response.status, 400);
  const json::value reply = parse_json(response.body, "reply");
  EXPECT_EQ(at(reply, "/error/code"), "context_length_exceeded");
  EXPECT_EQ(at(reply, "/error/type"), "invalid_request_error");
  EXPECT_EQ(at(reply, "/type"), "BadRequestError");
  EXPECT_EQ(at(reply, "/code"), 400);
  EXPECT_EQ(at(reply, "/error/message"), at(reply, "/message"));
  EXPECT_TRUE(std::string_view(at(reply, "/message").get_string())
                  .starts_with("This model's maximum context length is 1000 tokens. "))
      << response.body;
}

TEST(ModelsRoute, TellsTheServedModelAlone) {
  TestServer test("Hi");
  EXPECT_EQ(at(parse_json(test.call("GET", "/v1/models/ascii").body, "model"), "/max_model_len"),
            1000);
  const auto other = test.call("GET", "/v1/models/org%2Fother");
  EXPECT_EQ(other.status, 404);
  const json::value reply = parse_json(other.body, "reply");
  EXPECT_EQ(at(reply, "/error/code"), "model_not_found");
  EXPECT_NE(other.body.find("org/other"), std::string::npos);
}

TEST(EmbeddingsRoute, IsRefusedByName) {
  TestServer test("Hi");
  const auto response = test.call("POST", "/v1/embeddings", R"({"input":"x"})");
  EXPECT_EQ(response.status, 501);
  EXPECT_NE(response.body.find("embeddings"), std::string::npos);
}

TEST(OpenAiRoutes, TakeWhatClientsSendThatChangesNothingHere) {
  TestServer test("Hi");
  const std::string extras =
      R"("model":"m","user":"u","store":true,"metadata":{"a":"b"},"service_tier":"auto",
      "safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h","prediction":null,
      "verbosity":"low","seed":1,"top_k":5,"rid":null,"logit_bias":{},"priority":1})";
  test.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x","name":"n"}],"modalities":["text"],"reasoning_effort":"low",
      "parallel_tool_calls":true,"separate_reasoning":true,"stream_reasoning":true,"response_format":{"type":"text"},)" +
          extras);
  test.post("/v1/completions", R"({"prompt":"x","best_of":1,"suffix":null,)" + extras);
}

TEST(OpenAiRoutes, RefuseAMisspeltNameAsOpenAiDoes) {
  TestServer test("Hi");
  for (const auto& [path, body, message] : {
           std::tuple<const char*, const char*, const char*>{
               "/v1/chat/completions",
               R"({"messages":[{"role":"user","content":"x"}],"tempreature":0})",
               "tempreature is unknown; did you mean temperature?"},
           {"/v1/chat/completions",
            R"({"messages":[{"role":"user","content":"x"}],"sampling_params":{}})",
            "sampling_params is unknown"},
           {"/v1/chat/completions",
            R"({"messages":[{"role":"user","content":"x"}],"modalities":["text","audio"]})",
            "modalities must be"},
           {"/v1/completions", R"({"prompt":"x","max_token":9})", "did you mean max_tokens?"},
           {"/v1/completions", R"({"prompt":"x","messages":[]})", "messages is unknown"},
       }) {
    const auto response = test.call("POST", path, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_NE(response.body.find(message), std::string::npos) << body << " -> " << response.body;
  }
  EXPECT_TRUE(test.engine.requests().empty());
}

}  // namespace
}  // namespace slime::engine
