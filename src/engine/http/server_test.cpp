#include "engine/http/server.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "engine/http/openai_response.h"
#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(GenerateRoute, AnswersWithTextIdsAndMetaInfo) {
  TestServer test("Hi");
  const json::value reply =
      test.post("/generate", R"({"input_ids":[65,66,67],"rid":"r1","return_logprob":true,
      "sampling_params":{"max_new_tokens":8,"no_stop_trim":true,"skip_special_tokens":false}})");
  EXPECT_EQ(at(reply, "/text"), "Hi<|im_end|>");
  EXPECT_EQ(at(reply, "/output_ids"), json::value({72, 105, 127}));
  EXPECT_EQ(at(reply, "/meta_info/id"), "r1");
  EXPECT_EQ(at(reply, "/meta_info/finish_reason"),
            json::value({{"type", "stop"}, {"matched", 127}}));
  EXPECT_EQ(at(reply, "/meta_info/prompt_tokens"), 3);
  EXPECT_EQ(at(reply, "/meta_info/completion_tokens"), 3);
  EXPECT_EQ(at(reply, "/meta_info/weight_version"), "default");
  EXPECT_EQ(at(reply, "/meta_info/output_token_logprobs"),
            parse_json("[[-0.5,72,null],[-1.0,105,null],[-1.5,127,null]]", "expected"));
  EXPECT_FALSE(reply.get_object().at("meta_info").get_object().contains("input_token_logprobs"));
}

TEST(GenerateRoute, CutsTheStopTokenOrStringOffUnlessAskedNotTo) {
  TestServer test("Hello world");
  EXPECT_EQ(at(test.post("/generate", R"({"text":"x"})"), "/text"), "Hello world");
  EXPECT_EQ(
      at(test.post("/generate", R"({"text":"x","sampling_params":{"stop":["o w"]}})"), "/text"),
      "Hell");
  EXPECT_EQ(at(test.post("/generate",
                         R"({"text":"x","sampling_params":{"stop":"o w","no_stop_trim":true}})"),
               "/text"),
            "Hello w");
}

TEST(GenerateRoute, ScoresAPromptWithoutGenerating) {
  TestServer test("Hi");
  const json::value reply = test.post("/generate", R"({"input_ids":[65,66,67],"return_logprob":true,
      "logprob_start_len":0,"return_text_in_logprobs":true,"sampling_params":{"max_new_tokens":0}})");
  EXPECT_EQ(at(reply, "/text"), "");
  EXPECT_EQ(at(reply, "/meta_info/finish_reason"),
            json::value({{"type", "length"}, {"length", 0}}));
  EXPECT_EQ(at(reply, "/meta_info/input_token_logprobs"),
            parse_json(R"([[null,65,"A"],[-0.25,66,"B"],[-0.25,67,"C"]])", "expected"));
  EXPECT_EQ(at(reply, "/meta_info/output_token_logprobs"), json::array{});
}

TEST(GenerateRoute, AnswersBatchesAndSeveralSamplesWithAList) {
  TestServer test("Hi");
  const json::value reply =
      test.post("/generate", R"({"input_ids":[[65],[66,66]],"rid":"r","return_logprob":[true,false],
      "sampling_params":{"n":2,"sampling_seed":7,"max_new_tokens":1},"top_logprobs_num":1})");
  ASSERT_EQ(reply.get_array().size(), 4u);
  EXPECT_EQ(at(reply, "/0/meta_info/id"), "r_0");
  EXPECT_EQ(at(reply, "/3/meta_info/id"), "r_3");
  EXPECT_EQ(at(reply, "/0/meta_info/prompt_tokens"), 1);
  EXPECT_EQ(at(reply, "/1/meta_info/prompt_tokens"), 2);
  EXPECT_EQ(at(reply, "/2/meta_info/prompt_tokens"), 1);
  EXPECT_EQ(at(reply, "/0/meta_info/output_top_logprobs"),
            parse_json("[[[-0.5,72,null]]]", "expected"));
  EXPECT_FALSE(reply.at_pointer("/1/meta_info").get_object().contains("output_token_logprobs"));
  const auto requests = test.engine.requests();
  EXPECT_EQ(requests[0].sampling.sampling_seed, 7u);
  EXPECT_EQ(requests[2].sampling.sampling_seed, 8u);
}

TEST(GenerateRoute, StreamsFramesThatRepeatEverythingSoFar) {
  TestServer test("Hey");
  const auto response =
      test.call("POST", "/generate", R"({"text":"x","stream":true,"return_logprob":true})");
  EXPECT_EQ(response.content_type, "text/event-stream");
  const auto frames = frames_of(response.body);
  ASSERT_FALSE(frames.empty());
  std::string before;
  for (const json::value& frame : frames) {
    const std::string text(at(frame, "/text").get_string());
    EXPECT_TRUE(text.starts_with(before));
    before = text;
    EXPECT_EQ(at(frame, "/output_ids").get_array().size(),
              at(frame, "/meta_info/output_token_logprobs").get_array().size());
  }
  EXPECT_EQ(before, "Hey");
  EXPECT_EQ(at(frames.back(), "/meta_info/finish_reason/type"), "stop");
}

TEST(GenerateRoute, StreamsOnlyNewPartsWhenTheServerIsIncremental) {
  TestServer test("Hey you", {.incremental_streaming_output = true});
  std::string text;
  std::size_t num_ids = 0, num_log_probs = 0;
  for (const json::value& frame : frames_of(
           test.call("POST", "/generate", R"({"text":"x","stream":true,"return_logprob":true})")
               .body)) {
    text += at(frame, "/text").get_string();
    num_ids += at(frame, "/output_ids").get_array().size();
    num_log_probs += at(frame, "/meta_info/output_token_logprobs").get_array().size();
  }
  EXPECT_EQ(text, "Hey you");
  EXPECT_EQ(num_ids, 8u);
  EXPECT_EQ(num_log_probs, 8u);
}

TEST(GenerateRoute, HoldsBackWhatMayBecomeAStopString) {
  TestServer test("one END");
  for (const json::value& frame :
       frames_of(test.call("POST", "/generate",
                           R"({"text":"x","stream":true,"sampling_params":{"stop":"END"}})")
                     .body)) {
    EXPECT_EQ(at(frame, "/text").get_string().find('E'), std::string::npos);
  }
}

TEST(GenerateRoute, NamesTheFieldsThatAreWrong) {
  TestServer test("Hi");
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "JSON object"},
      {R"({"text":"x")", "not valid JSON"},
      {R"({})", "text or input_ids"},
      {R"({"input_ids":[]})", "input_ids"},
      {R"({"input_ids":[1.5]})", "input_ids"},
      {R"({"input_ids":[128]})", "input_ids"},
      {R"({"input_ids":[-1]})", "input_ids"},
      {R"({"text":7})", "text"},
      {R"({"text":[]})", "text"},
      {R"({"text":"x","stream":1})", "stream"},
      {R"({"text":"x","return_logprob":"yes"})", "return_logprob"},
      {R"({"text":["x","y"],"return_logprob":[true]})", "return_logprob"},
      {R"({"text":["x","y"],"rid":["a","a"]})", "rid"},
      {R"({"text":"x","logprob_start_len":-2})", "logprob_start_len"},
      {R"({"text":"x","top_logprobs_num":1000000})", "top_logprobs_num"},
      {R"({"text":"x","image_data":"http://x"})", "image_data"},
      {R"({"text":"x","lora_path":"x"})", "lora_path"},
      {R"({"text":"x","sampling_params":7})", "sampling_params"},
      {R"({"text":"x","sampling_params":{"temperature":-1}})", "temperature"},
      {R"({"text":"x","sampling_params":{"temperature":"hot"}})", "temperature"},
      {R"({"text":"x","sampling_params":{"temperature":1e400}})", "temperature"},
      {R"({"text":"x","sampling_params":{"temperature":1e300}})", "temperature"},
      {R"({"text":"x","sampling_params":{"top_p":0}})", "top_p"},
      {R"({"text":"x","sampling_params":{"top_p":1.01}})", "top_p"},
      {R"({"text":"x","sampling_params":{"top_k":0}})", "top_k"},
      {R"({"text":"x","sampling_params":{"top_k":true}})", "top_k"},
      {R"({"text":"x","sampling_params":{"min_p":2}})", "min_p"},
      {R"({"text":"x","sampling_params":{"frequency_penalty":3}})", "frequency_penalty"},
      {R"({"text":"x","sampling_params":{"presence_penalty":-3}})", "presence_penalty"},
      {R"({"text":"x","sampling_params":{"repetition_penalty":0}})", "repetition_penalty"},
      {R"({"text":"x","sampling_params":{"repetition_penalty":1e-300}})", "repetition_penalty"},
      {R"({"text":"x","sampling_params":{"max_new_tokens":-1}})", "max_new_tokens"},
      {R"({"text":"x","sampling_params":{"max_new_tokens":9223372036854775808}})",
       "max_new_tokens"},
      {R"({"text":"x","sampling_params":{"min_new_tokens":9,"max_new_tokens":8}})",
       "min_new_tokens"},
      {R"({"text":"x","sampling_params":{"n":0}})", "n must"},
      {R"({"text":"x","sampling_params":{"n":100000000}})", "n must"},
      {R"({"text":"x","sampling_params":{"stop":[1]}})", "stop"},
      {R"({"text":"x","sampling_params":{"stop_token_ids":[-5]}})", "stop_token_ids"},
      {R"({"text":"x","sampling_params":{"logit_bias":{"a":1}}})", "logit_bias"},
      {R"({"text":"x","sampling_params":{"logit_bias":{"5000":1}}})", "logit_bias"},
      {R"({"text":"x","sampling_params":{"logit_bias":{"5":1e39}}})", "logit_bias"},
      {R"({"text":"x","sampling_params":{"logit_bias":{"5":-1e39}}})", "logit_bias"},
      {R"({"text":"x","rid":"a","rid":"b"})", "\"rid\" stands twice"},
      {R"({"text":"x","sampling_params":{"top_p":1,"top_\u0070":0.5}})", "\"top_p\" stands twice"},
      {R"({"text":"x","sampling_params":{"json_schema":"{}"}})", "json_schema"},
      {R"({"text":"x","sampling_params":{"regex":"a"}})", "regex"},
  };
  for (const auto& [body, name] : cases) {
    const auto response = test.call("POST", "/generate", body);
    EXPECT_EQ(response.status, 400) << body;
    const json::value reply = parse_json(response.body, "reply");
    const std::string message(at(reply, "/error/message").get_string());
    EXPECT_NE(message.find(name), std::string::npos) << body << " -> " << message;
  }
  EXPECT_TRUE(test.engine.requests().empty());
  const std::string longest(1000, 'x');
  EXPECT_EQ(test.call("POST", "/generate", "{\"text\":\"" + longest + "\"}").status, 400);
}

TEST(GenerateRoute, TakesNullForTheDefault) {
  TestServer test("Hi");
  test.post(
      "/generate",
      R"({"text":"x","rid":null,"return_logprob":null,"sampling_params":{"stop":null,"top_p":null,
      "temperature":null,"stop_token_ids":null,"json_schema":null}})");
  EXPECT_EQ(test.engine.requests().at(0).sampling.temperature, 1.0);
}

TEST(GenerateRoute, AbortsWhenTheClientGoesAway) {
  TestServer test("");
  {
    boost::asio::io_context context;
    boost::asio::ip::tcp::socket socket(context);
    const std::string url = test.server.url();
    const auto port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
    socket.connect({boost::asio::ip::make_address("127.0.0.1"), port});
    const std::string body = R"({"text":"x","sampling_params":{"max_new_tokens":1000000}})";
    boost::asio::write(
        socket, boost::asio::buffer("POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                                    std::to_string(body.size()) + "\r\n\r\n" + body));
    EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 0; }));
}

TEST(ControlRoutes, AbortAnswersTheAbortedRequest) {
  TestServer test("");
  std::thread aborter([&] {
    EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
    EXPECT_EQ(test.call("POST", "/abort_request", R"({"rid":"r9"})").status, 200);
  });
  const json::value reply = test.post(
      "/generate", R"({"text":"x","rid":"r9","sampling_params":{"max_new_tokens":1000000}})");
  aborter.join();
  EXPECT_EQ(at(reply, "/meta_info/finish_reason/type"), "abort");
  EXPECT_EQ(test.call("POST", "/abort_request", R"({})").status, 400);
}

TEST(ControlRoutes, AbortByTheBaseRidEndsAllItsSamples) {
  TestServer test("");
  std::thread aborter([&] {
    EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 2; }));
    EXPECT_EQ(test.call("POST", "/abort_request", R"({"rid":"x"})").status, 200);
    if (!eventually([&] { return test.engine.load()->num_running == 0; })) {
      ADD_FAILURE() << "x_0 and x_1 still run";
      test.call("POST", "/abort_request", R"({"abort_all":true})");
    }
  });
  const json::value reply = test.post(
      "/generate", R"({"text":"q","rid":"x","sampling_params":{"n":2,"max_new_tokens":1000000}})");
  aborter.join();
  EXPECT_EQ(at(reply, "/0/meta_info/finish_reason/type"), "abort");
  EXPECT_EQ(at(reply, "/1/meta_info/id"), "x_1");
}

TEST(ControlRoutes, PauseAndContinue) {
  TestServer test("Hi");
  EXPECT_EQ(at(test.post("/pause_generation", R"({"mode":"retract"})"), "/status"), "ok");
  EXPECT_TRUE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("GET", "/health").status, 200);
  EXPECT_EQ(test.call("GET", "/health_generate").status, 200);
  EXPECT_EQ(at(test.post("/continue_generation", "{}"), "/status"), "ok");
  EXPECT_FALSE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("GET", "/health_generate").status, 200);
  EXPECT_EQ(test.call("POST", "/pause_generation", R"({"mode":"later"})").status, 400);
}

TEST(ControlRoutes, MemoryOfTheCacheIsReleasedAndResumed) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("POST", "/release_memory_occupation", "{}").status, 200);
  EXPECT_TRUE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("POST", "/resume_memory_occupation", R"({"tags":["weights"]})").status, 200);
  EXPECT_TRUE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("POST", "/resume_memory_occupation", R"({"tags":["kv_cache","cuda_graph"]})")
                .status,
            200);
  EXPECT_FALSE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("POST", "/release_memory_occupation", R"({"tags":["disk"]})").status, 400);
}

TEST(ControlRoutes, FlushTheCacheWhenIdle) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("GET", "/flush_cache").status, 200);
  EXPECT_EQ(test.call("POST", "/flush_cache?timeout=1").status, 200);
  EXPECT_EQ(test.call("POST", "/flush_cache?timeout=soon").status, 400);
}

TEST(ControlRoutes, UpdateWeightsReadsBelowTheRootsOnly) {
  TestServer test("Hi");
  const std::string models = SLIME_SOURCE_DIR "/tests/fixtures/models";
  const auto update = [&](const std::string& path) {
    return test.call("POST", "/update_weights_from_disk",
                     json::serialize(json::value{{"model_path", path}, {"weight_version", "7"}}));
  };
  EXPECT_EQ(update(models + "/llama").status, 200);
  EXPECT_EQ(test.call("GET", "/get_weight_version").body, R"({"weight_version":"7"})");
  EXPECT_EQ(update(models + "/qwen2").body,
            R"({"success":false,"message":"another shape","num_paused_requests":0})");
  EXPECT_EQ(update(models + "/../../http").status, 400);
  EXPECT_EQ(update("/etc").status, 400);
  EXPECT_EQ(update("/no/such/place").status, 400);
  EXPECT_EQ(test.call("GET", "/weight_version").body, R"({"weight_version":"7"})");
  test.post("/update_weight_version", R"({"new_version":"8"})");
  EXPECT_EQ(at(test.post("/generate", R"({"text":"x"})"), "/meta_info/weight_version"), "8");
}

TEST(ControlRoutes, UpdatesThatMeetGetVersionsOfTheirOwn) {
  TestServer test("Hi");
  const std::string models = SLIME_SOURCE_DIR "/tests/fixtures/models";
  const auto update = [&] {
    EXPECT_EQ(test.call("POST", "/update_weights_from_disk",
                        json::serialize(json::value{{"model_path", models + "/llama"}}))
                  .status,
              200);
  };
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 3; ++i) clients.emplace_back(update);
  }
  EXPECT_EQ(test.engine.update_versions(), (std::vector<WeightVersion>{1, 2, 3}));
}

TEST(ControlRoutes, ARefusedUpdateChangesNothing) {
  TestServer test("");
  const std::string models = SLIME_SOURCE_DIR "/tests/fixtures/models";
  std::thread client([&] {
    test.post("/generate",
              R"({"text":"x","rid":"r","sampling_params":{"max_new_tokens":1000000}})");
  });
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
  EXPECT_EQ(test.call("POST", "/update_weights_from_disk",
                      json::serialize(json::value{{"model_path", models + "/qwen2"},
                                                  {"abort_all_requests", true},
                                                  {"keep_pause", true}}))
                .status,
            400);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(test.engine.load()->num_running, 1);
  EXPECT_FALSE(test.engine.load()->is_paused);
  EXPECT_EQ(test.engine.weight_version(), 0);
  test.call("POST", "/abort_request", R"({"rid":"r"})");
  client.join();
}

TEST(InformationRoutes, HealthIsAMatterOfProgress) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("GET", "/health").status, 200);
  test.engine.set_seconds_without_progress(301);
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

TEST(ChatRoute, RendersTheTemplateAndAnswers) {
  TestServer test("Hi");
  const json::value reply =
      test.post("/v1/chat/completions", R"({"model":"m","messages":[{"role":"user","content":"Q"}],
      "chat_template_kwargs":{"enable_thinking":false},"tools":[{"type":"function"}],"seed":3,"max_tokens":99,
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
      R"([{"role":"user","content":"Q"}]{"enable_thinking":false,"tools":[{"type":"function"}],)"
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
      {R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}})",
       "response_format"},
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
  OpenAiCall call;
  call.is_chat = false;
  call.streams = call.returns_logprobs = true;
  call.requests.emplace_back();
  OpenAiChoice choice(call, 0, *tokenizer);
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

}  // namespace
}  // namespace slime::engine
