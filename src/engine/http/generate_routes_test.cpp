/// POST /generate over HTTP: answers, streams, and what is refused.

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "engine/http/output_text.h"
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

TEST(OutputText, AStopStringThatCameTooSoonIsText) {
  const auto tokenizer = make_ascii_tokenizer();
  const SamplingParams params{.min_new_tokens = 5, .stop = {"ab"}};
  const std::vector<TokenId> ids = {'a', 'b', 'c', 'd', 'a', 'b'};
  const FinishReason reason{.kind = FinishReason::Kind::kStop, .matched = std::string("ab")};
  OutputText whole(params, *tokenizer);
  whole.add(ids, reason);
  EXPECT_EQ(whole.visible(), "abcd");
  OutputText streamed(params, *tokenizer);
  for (std::size_t i = 0; i < ids.size(); ++i)
    streamed.add(std::span(ids).subspan(i, 1),
                 i + 1 == ids.size() ? std::optional(reason) : std::nullopt);
  EXPECT_EQ(streamed.visible(), "abcd");
}

TEST(GenerateRoute, ScoresAPromptThatFillsTheContext) {
  TestServer test("Hi");
  const std::string longest(1000, 'x');  // tokens, and the context holds as many
  const json::value reply = test.post("/generate", R"({"return_logprob":true,"logprob_start_len":0,
      "sampling_params":{"max_new_tokens":0},"text":")" +
                                                       longest + "\"}");
  EXPECT_EQ(at(reply, "/meta_info/input_token_logprobs").get_array().size(), 1000U);
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

TEST(GenerateRoute, TakesAListOfEachFieldForABatchOfPrompts) {
  TestServer test("Hi");
  const json::value reply = test.post("/generate", R"({"text":["a","bc"],"rid":["first","second"],
      "sampling_params":[{"max_new_tokens":1},{"max_new_tokens":2}],"return_logprob":[false,true],
      "logprob_start_len":[-1,2],"top_logprobs_num":[0,1]})");
  ASSERT_EQ(reply.get_array().size(), 2u);
  EXPECT_EQ(at(reply, "/0/meta_info/id"), "first");
  EXPECT_EQ(at(reply, "/1/meta_info/id"), "second");
  EXPECT_EQ(at(reply, "/0/output_ids").get_array().size(), 1u);
  EXPECT_EQ(at(reply, "/1/output_ids").get_array().size(), 2u);
  EXPECT_FALSE(reply.at_pointer("/0/meta_info").get_object().contains("output_token_logprobs"));
  EXPECT_EQ(at(reply, "/1/meta_info/output_token_logprobs").get_array().size(), 2u);
  const json::value one = test.post("/generate", R"({"input_ids":[[65]]})");
  EXPECT_EQ(one.get_array().size(), 1u);
}

TEST(GenerateRoute, SamplesOfPromptsWithRidsOfTheirOwnAreNumbered) {
  TestServer test("Hi");
  const json::value reply = test.post("/generate", R"({"text":["x","y"],"rid":["a","b"],
      "sampling_params":{"n":2,"max_new_tokens":1}})");
  ASSERT_EQ(reply.get_array().size(), 4u);
  EXPECT_EQ(at(reply, "/0/meta_info/id"), "a_0");
  EXPECT_EQ(at(reply, "/1/meta_info/id"), "b_0");
  EXPECT_EQ(at(reply, "/2/meta_info/id"), "a_1");
  EXPECT_EQ(at(reply, "/3/meta_info/id"), "b_1");
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
      {R"({"input_ids":[65,66],"return_logprob":true,"logprob_start_len":3})",
       "logprob_start_len is 3, beyond the prompt's 2 tokens"},
      {R"({"input_ids":[[65,66],[65]],"return_logprob":true,"logprob_start_len":[2,2]})",
       "logprob_start_len is 2, beyond the prompt's 1 tokens"},
      {R"({"input_ids":[[65],[]]})", "input_ids must not be empty"},
      {R"({"input_ids":[[65],66]})", "input_ids"},
      {R"({"input_ids":[65,[66]]})", "input_ids"},
      {R"({"text":["x",7]})", "text"},
      {R"({"text":["x","y"],"sampling_params":[{}]})", "sampling_params is a list"},
      {R"({"text":["x","y"],"sampling_params":[{},7]})", "sampling_params must be"},
      {R"({"text":["x","y"],"sampling_params":[{"n":1},{"n":2}]})", "sampling_params.n"},
      {R"({"text":"x","sampling_params":[{}]})", "sampling_params is a list"},
      {R"({"text":["x","y"],"rid":["a"]})", "rid is a list"},
      {R"({"text":"x","rid":["a"]})", "rid is a list"},
      {R"({"text":["x","y"],"rid":["a",7]})", "rid must be"},
      {R"({"text":["x","y"],"sampling_params":{"n":2},"rid":["a","b","c","d"]})", "rid is a list"},
      {R"({"text":["x","y"],"return_logprob":[true,1]})", "return_logprob must be"},
      {R"({"text":"x","top_logprobs_num":1000000})", "top_logprobs_num"},
      {R"({"text":"x","image_data":"http://x"})", "image_data"},
      {R"({"text":"x","lora_path":7})", "lora_path"},
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
      {R"({"text":"x","sampling_params":{"json_schema":7}})", "json_schema"},
      {R"({"text":"x","sampling_params":{"regex":""}})", "regex"},
      {R"({"text":"x","sampling_params":{"regex":"a","ebnf":"root ::= \"a\""}})",
       "regex, ebnf are 2 grammars"},
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

/// The message of a refusal; fails when the request is taken.
std::string refusal_of(TestServer& test, const char* path, const std::string& body) {
  const auto response = test.call("POST", path, body);
  EXPECT_EQ(response.status, 400) << body;
  return response.body;
}

TEST(GenerateRoute, AMisspeltNameIsRefusedWithTheOneThatWasMeant) {
  TestServer test("Hi");
  const std::pair<const char*, const char*> cases[] = {
      {R"({"text":"x","smapling_params":{}})",
       "smapling_params is unknown; did you mean sampling_params?"},
      {R"({"text":"x","sampling_params":{"tempreature":0}})",
       "sampling_params.tempreature is unknown; did you mean temperature?"},
      {R"({"text":"x","sampling_params":{"tempreature":null}})", "tempreature"},
      {R"({"text":["x","y"],"sampling_params":[{},{"top_kk":2}]})", "did you mean top_k?"},
      {R"({"txet":"x"})", "did you mean text?"},
      {R"({"text":"x","temperature":0})", "temperature is unknown"},
      {R"({"text":"x","something_else":1})", "something_else is unknown\""},
      {R"({"text":"x","input_ids":[65]})", "input_ids and text are two prompts"},
  };
  for (const auto& [body, message] : cases) {
    const std::string told = refusal_of(test, "/generate", body);
    EXPECT_NE(told.find(message), std::string::npos) << body << " -> " << told;
  }
  EXPECT_TRUE(test.engine.requests().empty());
}

TEST(GenerateRoute, TakesFieldsOfSglangThatChangeNothingHere) {
  TestServer test("Hi");
  const json::value reply = test.post("/generate", R"({"text":"x","session_id":"s","priority":3,
      "routing_key":"k","extra_key":"e","cache_salt":"c","bootstrap_host":null,"bootstrap_port":1,"bootstrap_room":2,
      "routed_dp_rank":0,"data_parallel_rank":0,"no_logs":true,"custom_labels":{},"background":false,
      "return_bytes":false,"log_metrics":true,"modalities":["image"],"model":"m","input_embeds":null,"image_data":[],
      "return_hidden_states":false,"sampling_params":{"stream_interval":4,"custom_params":{"anything":1}}})");
  EXPECT_EQ(at(reply, "/text"), "Hi");
  EXPECT_EQ(test.engine.requests().at(0).stream_interval, 4);
}

TEST(GenerateRoute, SaltsAreOfTheRequestAndBothOfThemCount) {
  TestServer test("Hi");
  test.post("/generate", R"({"text":["x","y"],"cache_salt":["a","b"]})");
  test.post("/generate", R"({"text":"x","cache_salt":"a","extra_key":"k"})");
  test.post("/v1/completions", R"({"model":"m","prompt":"x","cache_salt":"a"})");
  test.post("/generate", R"({"text":"x"})");
  const auto requests = test.engine.requests();
  EXPECT_NE(requests.at(0).cache_salt, requests.at(1).cache_salt);
  EXPECT_NE(requests.at(0).cache_salt, requests.at(2).cache_salt);
  EXPECT_EQ(requests.at(0).cache_salt, requests.at(3).cache_salt);
  EXPECT_EQ(requests.at(4).cache_salt, "");
}

}  // namespace
}  // namespace slime::engine
