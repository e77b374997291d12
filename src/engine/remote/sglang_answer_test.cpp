#include "engine/remote/sglang_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::engine {
namespace {

using testing::ElementsAre;
using Kind = FinishReason::Kind;

GenerateRequest scored() {
  GenerateRequest request;
  request.input_ids = {1, 2};
  request.return_logprob = true;
  return request;
}

TEST(SglangAnswer, FramesOfEverythingSoFarTellWhatIsNew) {
  SglangAnswer answer(scored());
  const GenerateUpdate first = answer.add(
      R"({"text":"a","meta_info":{"completion_tokens":1,"prompt_tokens":2,"cached_tokens":1,
          "finish_reason":null,"weight_version":"7","output_token_logprobs":[[-0.5,10,null]]}})");
  EXPECT_THAT(first.output_ids, ElementsAre(10));
  EXPECT_THAT(first.output_log_probs, ElementsAre(-0.5F));
  EXPECT_EQ(first.prompt_tokens, 2);
  EXPECT_EQ(first.cached_tokens, 1);
  EXPECT_FALSE(first.finish);
  const GenerateUpdate second = answer.add(
      R"({"meta_info":{"completion_tokens":3,"finish_reason":{"type":"length","length":3},
          "output_token_logprobs":[[-0.5,10,null],[-1,11,"x"],[0,12,null]]}})");
  EXPECT_THAT(second.output_ids, ElementsAre(11, 12));
  EXPECT_EQ(second.finish->kind, Kind::kLength);
  EXPECT_EQ(answer.num_tokens(), 3);
}

TEST(SglangAnswer, FramesOfWhatIsNewAreTakenAsTheyAre) {
  SglangAnswer answer(scored());
  answer.add(R"({"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-0.5,10,null]]}})");
  const GenerateUpdate second = answer.add(
      R"({"meta_info":{"completion_tokens":3,"output_token_logprobs":[[-1,11,null],[-2,12,null]],
          "finish_reason":{"type":"stop","matched":12}}})");
  EXPECT_THAT(second.output_ids, ElementsAre(11, 12));
  EXPECT_EQ(std::get<TokenId>(second.finish->matched), 12);
}

TEST(SglangAnswer, ReadsPromptScoresOnceAndTheBestTokens) {
  GenerateRequest request = scored();
  request.logprob_start_len = 0;
  request.top_logprobs_num = 1;
  SglangAnswer answer(request);
  const std::string frame =
      R"({"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-0.5,10,null]],
          "output_top_logprobs":[[[-0.25,9,null]]],"input_token_logprobs":[[null,1,null],[-3,2,null]],
          "input_top_logprobs":[null,[[-1,4,null]]]}})";
  const GenerateUpdate first = answer.add(frame);
  EXPECT_THAT(first.input_log_probs, ElementsAre(std::nullopt, -3.0F));
  EXPECT_THAT(first.output_top, ElementsAre(ElementsAre(std::pair(-0.25F, 9))));
  EXPECT_EQ(first.input_top.size(), 2U);
  EXPECT_TRUE(answer.add(frame).input_log_probs.empty());
}

TEST(SglangAnswer, DraftsAreCountedUnderNewNamesAndOldOnes) {
  SglangAnswer ours(scored());
  const GenerateUpdate first = ours.add(
      R"({"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-0.5,10,null]],
          "spec_verify_ct":1,"spec_draft_token_num":2,"spec_accept_token_num":0}})");
  EXPECT_EQ(first.drafts, (DraftCounts{.num_drafted = 2, .num_kept = 0, .num_steps = 1}));
  const GenerateUpdate last = ours.add(
      R"({"meta_info":{"completion_tokens":3,"output_token_logprobs":[[-1,11,null],[-1,12,null]],
          "spec_verify_ct":2,"spec_draft_token_num":7,"spec_accept_token_num":1}})");
  EXPECT_EQ(last.drafts, (DraftCounts{.num_drafted = 5, .num_kept = 1, .num_steps = 1}))
      << "what came since the frame before";

  SglangAnswer newer(scored());  // which tells them at the end alone
  EXPECT_EQ(newer
                .add(R"({"meta_info":{"completion_tokens":1,
                         "output_token_logprobs":[[-0.5,10,null]]}})")
                .drafts,
            DraftCounts{});
  EXPECT_EQ(newer
                .add(R"({"meta_info":{"completion_tokens":2,"output_token_logprobs":[[-1,11,null]],
                         "spec_verify_ct":1,"spec_num_proposed_drafts":3,
                         "spec_num_correct_drafts":1}})")
                .drafts,
            (DraftCounts{.num_drafted = 3, .num_kept = 1, .num_steps = 1}));
}

TEST(SglangAnswer, RefusesWhatIsNoAnswer) {
  for (
      const char* frame :
      {"", "[]", "{}", R"({"meta_info":{}})",
       R"({"meta_info":{"completion_tokens":2,"output_token_logprobs":[[-1,10,null]]}})",
       R"({"meta_info":{"completion_tokens":1,"output_token_logprobs":[[null,10,null]]}})",
       R"({"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-1,-10,null]]}})",
       R"({"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-1]]}})",
       R"({"meta_info":{"completion_tokens":0,"output_token_logprobs":[],"finish_reason":{"type":"?"}}})",
       R"({"error":{"message":"no room"}})"}) {
    SglangAnswer answer(scored());
    EXPECT_THROW(answer.add(frame), ConfigError) << frame;
  }
}

TEST(SglangAnswer, TheRequestHasWhatTheServerNeeds) {
  GenerateRequest request = scored();
  request.sampling.temperature = 0.5;
  request.sampling.sampling_seed = 9;
  const json::object body = sglang_request(request, "r.1");
  EXPECT_EQ(body.at("rid"), "r.1");
  EXPECT_EQ(body.at("sampling_params").at("temperature"), 0.5);
  EXPECT_EQ(body.at("sampling_params").at("sampling_seed"), 9);
  EXPECT_EQ(body.at("sampling_params").at("repetition_penalty"), 1.0);
  EXPECT_EQ(body.at("stream"), true);
  EXPECT_EQ(body.at("logprob_start_len"), -1);
  EXPECT_FALSE(body.contains("num_sampled"));
  GenerateRequest continued = request;
  continued.num_sampled = 2;
  EXPECT_EQ(sglang_request(continued, "r.2").at("num_sampled"), 2);
}

TEST(EventSplitter, GivesOutWholeEventsAtAnySplit) {
  const std::string text = ": hello\n\ndata: {\"a\":1}\n\ndata:x\n\ndata: [DONE]\n\nda";
  for (std::size_t split = 0; split <= text.size(); ++split) {
    EventSplitter events(100);
    std::vector<std::string> data;
    for (const std::string& part : {text.substr(0, split), text.substr(split)}) {
      events.add(part);
      while (auto next = events.next()) data.push_back(*next);
    }
    EXPECT_THAT(data, ElementsAre("{\"a\":1}", "x", "[DONE]")) << split;
  }
}

TEST(EventSplitter, RefusesAnEventWithoutEnd) {
  EventSplitter events(100);
  events.add("data: " + std::string(200, 'x'));
  EXPECT_THROW(events.next(), ConfigError);
}

}  // namespace
}  // namespace slime::engine
