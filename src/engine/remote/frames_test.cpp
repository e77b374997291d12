#include "engine/remote/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "net/frame_channel.h"

namespace slime::engine {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

GenerateRequest full_request() {
  GenerateRequest request;
  request.rid = "rollout-17.0";
  request.input_ids = {1, 2, 3, 2'000'000};
  const auto picture = std::make_shared<Attachment>(
      Attachment{.key = 77, .type = "image/png", .bytes = "\x89PNG", .t = 1, .h = 2, .w = 1});
  request.media = {{0, 1, picture}, {2, 4, picture}};
  request.num_sampled = 2;
  request.return_logprob = true;
  request.logprob_start_len = 1;
  request.top_logprobs_num = 3;
  request.token_ids_logprob = {4, 1};
  request.return_top_p_token_ids = true;
  request.return_top_p_log_probs = true;
  request.return_routed_experts = true;
  request.routed_experts_start_len = 3;
  request.stream_interval = 8;
  request.sampling = {.max_new_tokens = 7,
                      .temperature = 0.5,
                      .top_p = 0.9,
                      .top_k = 40,
                      .min_p = 0.01,
                      .frequency_penalty = 0.1,
                      .presence_penalty = -0.2,
                      .repetition_penalty = 1.1,
                      .min_new_tokens = 2,
                      .stop = {"\n\n", "</s>"},
                      .stop_token_ids = {5, 6},
                      .logit_bias = {{9, -1.5}, {10, 2}},
                      .ignore_eos = true,
                      .skip_special_tokens = false,
                      .spaces_between_special_tokens = false,
                      .no_stop_trim = true,
                      .sampling_seed = 0xFFFFFFFFFFFFFFFF};
  return request;
}

TEST(RemoteFrames, ARequestArrivesWithAllOfItsFields) {
  const std::string frame = to_frame(RemoteRequest{42, full_request()});
  const RemoteRequest request = remote_request_from(frame);
  EXPECT_EQ(request.number, 42u);
  EXPECT_EQ(request.request.rid, "rollout-17.0");
  EXPECT_EQ(request.request.input_ids, full_request().input_ids);
  EXPECT_EQ(request.request.media, full_request().media);
  EXPECT_EQ(request.request.media[0].what, request.request.media[1].what) << "bytes travel once";
  EXPECT_EQ(request.request.num_sampled, 2);
  EXPECT_EQ(request.request.sampling.stop, full_request().sampling.stop);
  EXPECT_EQ(request.request.sampling.logit_bias, full_request().sampling.logit_bias);
  EXPECT_EQ(request.request.sampling.sampling_seed, full_request().sampling.sampling_seed);
  // Whatever the others are, the same bytes say them again.
  EXPECT_EQ(to_frame(request), frame);
  EXPECT_NE(to_frame(RemoteRequest{42, {}}), frame);
}

RemoteUpdates some_updates() {
  RemoteUpdates updates(3);
  updates[0] = {.number = 1, .update = {}};
  updates[0].update.output_ids = {7};
  updates[0].update.output_log_probs = {-0.25F};
  updates[0].update.versions = {{3, 1}};
  updates[0].update.prompt_tokens = 12;
  updates[0].update.cached_tokens = 4;
  updates[0].update.queue_seconds = 0.125;
  updates[1] = {.number = 2, .update = {}};
  updates[1].update.output_ids = {8, 9};
  updates[1].update.output_log_probs = {-1, -2};
  updates[1].update.output_top = {{{-1, 8}, {-1.5, 4}}, {{-2, 9}}};
  updates[1].update.output_asked = {{{-7, 3}}, {{-8, 3}}};
  updates[1].update.top_p_counts = {2, 1};
  updates[1].update.top_p_ids = {8, 4, 9};
  updates[1].update.top_p_log_probs = {-0.25F, -1.5F, 0};
  updates[1].update.routed_experts = {0, 3, 511, 2};
  updates[1].update.input_log_probs = {std::nullopt, -3.0F};
  updates[1].update.input_top = {{}, {{-3, 1}}};
  updates[1].update.input_asked = {{}, {{-9, 3}}};
  updates[1].update.scored_by = 6;
  updates[1].update.versions = {{3, 1}, {4, 1}};
  updates[1].update.drafts = {
      .num_drafted = 5, .num_kept = 1, .num_steps = 1, .num_compared = 2, .num_redrawn = 1};
  updates[1].update.finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = "\n\n"};
  updates[2] = {.number = 3, .update = {}};
  updates[2].update.finish = aborted(FinishReason::Cause::kOutOfMemory, "no room");
  return updates;
}

TEST(RemoteFrames, UpdatesArriveAsTheyWere) {
  const std::string frame = to_frame(some_updates());
  const RemoteUpdates updates = remote_updates_from(frame);
  ASSERT_EQ(updates.size(), 3u);
  EXPECT_EQ(updates[0].number, 1u);
  EXPECT_EQ(updates[0].update.output_ids, std::vector<TokenId>{7});
  EXPECT_EQ(updates[0].update.versions, (std::vector<VersionRun>{{3, 1}}));
  EXPECT_EQ(updates[0].update.queue_seconds, 0.125);
  EXPECT_FALSE(updates[0].update.finish);
  EXPECT_EQ(updates[1].update.output_top, some_updates()[1].update.output_top);
  EXPECT_EQ(updates[1].update.output_asked, some_updates()[1].update.output_asked);
  EXPECT_EQ(updates[1].update.input_asked, some_updates()[1].update.input_asked);
  EXPECT_EQ(updates[1].update.scored_by, 6);
  EXPECT_EQ(updates[0].update.drafts, DraftCounts{});
  EXPECT_EQ(updates[1].update.drafts, some_updates()[1].update.drafts);
  EXPECT_EQ(updates[1].update.top_p_ids, some_updates()[1].update.top_p_ids);
  EXPECT_EQ(updates[1].update.top_p_log_probs, some_updates()[1].update.top_p_log_probs);
  EXPECT_EQ(updates[1].update.input_log_probs, some_updates()[1].update.input_log_probs);
  EXPECT_EQ(std::get<std::string>(updates[1].update.finish->matched), "\n\n");
  EXPECT_EQ(updates[2].update.finish->cause, FinishReason::Cause::kOutOfMemory);
  EXPECT_EQ(updates[2].update.finish->message, "no room");
  EXPECT_EQ(to_frame(updates), frame);
}

TEST(RemoteFrames, UpdatesThatDoNotAddUpAreRefused) {
  const auto refuses = [](const auto& change, const std::string& why) {
    RemoteUpdates updates = some_updates();
    change(updates[1].update);
    const std::string frame = to_frame(updates);
    EXPECT_THAT([&] { remote_updates_from(frame); },
                ThrowsMessage<net::FrameError>(HasSubstr(why)));
  };
  refuses([](GenerateUpdate& u) { u.output_log_probs.pop_back(); }, "one log-prob a token");
  refuses([](GenerateUpdate& u) { u.output_top.pop_back(); }, "one log-prob a token");
  refuses([](GenerateUpdate& u) { u.versions.push_back({5, 1}); }, "more tokens than it has");
  refuses([](GenerateUpdate& u) { u.versions = {{5, -1}}; }, "more tokens than it has");
  refuses([](GenerateUpdate& u) { u.top_p_counts = {3, 1}; }, "counts more top-p ids");
  refuses([](GenerateUpdate& u) { u.top_p_counts = {1, 1}; }, "more top-p ids than it counts");
  refuses([](GenerateUpdate& u) { u.top_p_log_probs.pop_back(); }, "one log-prob a top-p id");
  refuses([](GenerateUpdate& u) { u.output_ids[0] = -4; }, "below 0");
  refuses([](GenerateUpdate& u) { u.drafts.num_kept = 6; }, "kept more drafts than it had");
  refuses([](GenerateUpdate& u) { u.drafts.num_kept = -1; }, "kept more drafts than it had");
  refuses([](GenerateUpdate& u) { u.drafts.num_compared = 6; }, "compared more drafts than it had");
  refuses([](GenerateUpdate& u) { u.drafts.num_redrawn = 3; }, "redrew more than it compared");
}

TEST(RemoteFrames, CallsAnswersAndWeightsArriveAsTheyWere) {
  const ControlCall call{.number = 9,
                         .kind = ControlCall::Kind::kUpdateWeights,
                         .version = 12,
                         .epoch = 3,
                         .source = ControlCall::Source::kDirectory,
                         .directory = "/models/a",
                         .running = RunningRequests::kKeep,
                         .stays_paused = true};
  EXPECT_EQ(control_call_from(to_frame(call)), call);
  const ControlCall written{.number = 10,
                            .kind = ControlCall::Kind::kUpdateWeights,
                            .source = ControlCall::Source::kWritten};
  EXPECT_EQ(control_call_from(to_frame(written)), written);
  const ControlCall exports{.number = 11, .kind = ControlCall::Kind::kExportWeights};
  const ControlCall changes{.number = 12,
                            .kind = ControlCall::Kind::kUpdateWeights,
                            .source = ControlCall::Source::kDeltaDirectory,
                            .directory = "/weights/weight_v000003",
                            .running = RunningRequests::kDrop,
                            .publication = 4,
                            .base = 3,
                            .num_changed = 17};
  const ControlCall checks{
      .number = 13, .kind = ControlCall::Kind::kCheckWeights, .check = WeightCheck::kReset};
  for (const ControlCall& each : {changes, checks})
    EXPECT_EQ(control_call_from(to_frame(each)), each);
  EXPECT_EQ(control_call_from(to_frame(exports)), exports);
  const ControlAnswer answer{
      .number = 9,
      .error = "no such file",
      .load = {.num_running = 3, .is_paused = true, .drafts = {9, 4, 6, 5, 1}},
      .copy_seconds = 0.004,
      .handles = {std::string("\0\xff", 2), "", "x"}};
  const ControlAnswer got = control_answer_from(to_frame(answer));
  EXPECT_EQ(got.copy_seconds, 0.004);
  EXPECT_EQ(got.handles, (std::vector<std::string>{std::string("\0\xff", 2), "", "x"}));
  EXPECT_EQ(got.error, "no such file");
  EXPECT_EQ(got.load.num_running, 3);
  EXPECT_TRUE(got.load.is_paused);
  EXPECT_EQ(got.load.drafts, (DraftCounts{9, 4, 6, 5, 1}));
  const std::string frame = to_frame(WeightPiece{.total_bytes = 10, .offset = 4, .bytes = "abcd"});
  EXPECT_EQ(weight_piece_from(frame).bytes, "abcd");
  EXPECT_EQ(weight_piece_from(frame).offset, 4u);
  EXPECT_THROW(
      weight_piece_from(to_frame(WeightPiece{.total_bytes = 7, .offset = 4, .bytes = "abcd"})),
      net::FrameError);
}

TEST(RemoteFrames, WhatAnEngineDoesArrivesOrIsRefused) {
  for (const Activity activity : {Activity::kIdle, Activity::kGenerates, Activity::kPaused})
    EXPECT_EQ(activity_from(activity_frame(activity)), activity);
  EXPECT_THROW(activity_from("\3"), net::FrameError);
  EXPECT_THROW(activity_from(""), net::FrameError);
  EXPECT_THROW(activity_from(std::string(2, '\1')), net::FrameError);
}

TEST(RemoteFrames, CutOrWithTooMuchBehindThemTheyAreRefused) {
  const std::string request = to_frame(RemoteRequest{42, full_request()});
  const std::string updates = to_frame(some_updates());
  for (std::size_t size = 0; size < request.size(); ++size)
    EXPECT_THROW(remote_request_from(request.substr(0, size)), net::FrameError) << size;
  for (std::size_t size = 0; size < updates.size(); ++size)
    EXPECT_THROW(remote_updates_from(updates.substr(0, size)), net::FrameError) << size;
  EXPECT_THROW(remote_request_from(request + '\0'), net::FrameError);
  EXPECT_THROW(remote_updates_from(updates + '\0'), net::FrameError);
}

/// Bytes changed at random are refused, or are the frame of what they are read as.
TEST(RemoteFrames, ChangedBytesAreRefusedOrMeanWhatTheySay) {
  std::mt19937 chance(3);
  const std::string request = to_frame(RemoteRequest{42, full_request()});
  const std::string updates = to_frame(some_updates());
  int num_refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = i % 2 == 0 ? request : updates;
    for (int k = 0; k < 3; ++k) bytes[chance() % bytes.size()] = static_cast<char>(chance());
    try {
      EXPECT_EQ(
          i % 2 == 0 ? to_frame(remote_request_from(bytes)) : to_frame(remote_updates_from(bytes)),
          bytes);
    } catch (const net::FrameError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 1000);
}

}  // namespace
}  // namespace slime::engine
