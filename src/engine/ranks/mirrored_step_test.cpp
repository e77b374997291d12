#include "engine/ranks/mirrored_step.h"

#include <gtest/gtest.h>

#include "engine/served_adapters.h"
#include "engine/step_runner.h"
#include "net/frame_channel.h"

namespace slime::engine {
namespace {

std::unique_ptr<Request> request_of(uint64_t handle, std::vector<TokenId> tokens) {
  auto request = std::make_unique<Request>();
  request->handle = static_cast<RequestHandle>(handle);
  request->client.rid = "r" + std::to_string(handle);
  request->client.sampling.top_k = 7;
  request->client.sampling.logit_bias = {{3, 0.5}};
  request->seed = 11 * handle;
  request->prompt_length = static_cast<int64_t>(tokens.size());
  request->tokens = std::move(tokens);
  request->pages = {4, 5};
  return request;
}

void expect_same(const Chunk& got, const Chunk& told) {
  EXPECT_EQ(got.num_tokens, told.num_tokens);
  EXPECT_EQ(got.num_drafts, told.num_drafts);
  EXPECT_EQ(got.feeds_draft_layer, told.feeds_draft_layer);
  EXPECT_EQ(got.num_foretold, told.num_foretold);
  EXPECT_EQ(got.request->handle, told.request->handle);
  EXPECT_EQ(got.request->tokens, told.request->tokens);
  EXPECT_EQ(got.request->pages, told.request->pages);
  EXPECT_EQ(got.request->window_pages, told.request->window_pages);
  EXPECT_EQ(got.request->num_computed, told.request->num_computed);
  EXPECT_EQ(got.request->prompt_length, told.request->prompt_length);
  EXPECT_EQ(got.request->seed, told.request->seed);
  EXPECT_EQ(got.request->output_counts, told.request->output_counts);
  EXPECT_EQ(got.request->client.media, told.request->client.media);
  EXPECT_EQ(got.request->allowed_W, told.request->allowed_W);
  EXPECT_EQ(got.request->client.sampling.top_k, told.request->client.sampling.top_k);
  EXPECT_EQ(got.request->client.sampling.logit_bias, told.request->client.sampling.logit_bias);
}

TEST(MirroredSteps, RequestsAreThoseOfTheFirstRankStepByStep) {
  StepFrames frames;
  MirroredSteps mirror;
  const auto a = request_of(1, {1, 2, 3}), b = request_of(2, {5, 6});
  a->client.media = {{0, 2, std::make_shared<Attachment>(Attachment{.key = 7, .bytes = "x"})}};
  b->allowed_W = {5, 6};
  const auto step = [&](const std::vector<Chunk>& chunks) {
    const std::string frame = frames.frame_of(chunks);
    const std::vector<Chunk> got = mirror.chunks_from(frame);
    EXPECT_EQ(got.size(), chunks.size());
    for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], chunks[i]);
    return frame.size();
  };
  const std::size_t whole = step({{a.get(), 3}, {b.get(), 1}});
  a->num_computed = 3;
  a->tokens.push_back(kPendingToken);  // still to be sampled where the next step is launched
  b->num_computed = 1;
  const std::size_t rest = step({{a.get(), 1}, {b.get(), 1}});
  EXPECT_LT(rest, whole / 2) << "what a request brought goes once";
  a->tokens.back() = 9;
  a->output_counts = {{9, 1}};
  a->num_computed = 4;
  a->tokens.push_back(10);
  a->pages = {4, 8, 9};  // others than before, behind a common beginning
  step({{a.get(), 1}});
  b->num_computed = 0;  // b was left out, and comes back with nothing computed
  b->pages = {};
  step({{b.get(), 2}, {a.get(), 1}});
}

TEST(MirroredSteps, ARequestHasTheSlotOfItsAdapter) {
  StepFrames frames;
  MirroredSteps mirror;
  const auto a = request_of(1, {1, 2, 3}), b = request_of(2, {5, 6});
  const auto loaded = std::make_shared<LoadedAdapter>();
  loaded->slot = 3;
  a->adapter = loaded;
  for (int step = 0; step < 2; ++step) {
    const std::vector<Chunk> chunks{{a.get(), 1}, {b.get(), 1}};
    const std::vector<Chunk> got = mirror.chunks_from(frames.frame_of(chunks));
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(slot_of(got[0].request->adapter), 3);
    EXPECT_EQ(slot_of(got[1].request->adapter), -1);
    for (Request* request : {a.get(), b.get()}) ++request->num_computed;
  }
}

TEST(MirroredSteps, ADraftLayerDoesTheSameOnAllRanks) {
  StepFrames frames;
  MirroredSteps mirror;
  const auto a = request_of(1, {1, 2, 3}), b = request_of(2, {5, 6, 7});
  a->client.sampling.max_new_tokens = b->client.sampling.max_new_tokens = 9;
  const std::vector<Chunk> chunks{{.request = a.get(), .num_tokens = 2, .feeds_draft_layer = true},
                                  {.request = b.get(),
                                   .num_tokens = 3,
                                   .num_drafts = 2,
                                   .feeds_draft_layer = true,
                                   .num_foretold = 4}};
  const std::vector<Chunk> got = mirror.chunks_from(frames.frame_of(chunks));
  ASSERT_EQ(got.size(), 2U);
  for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], chunks[i]);
  const std::vector<Chunk> unfinished{
      {.request = a.get(), .num_tokens = 1, .feeds_draft_layer = true, .num_foretold = 1}};
  EXPECT_THROW(mirror.chunks_from(frames.frame_of(unfinished)), net::FrameError)
      << "behind a prompt that goes on nothing is foretold";
}

TEST(MirroredSteps, AllPageTablesAreTold) {
  StepFrames frames;
  MirroredSteps mirror;
  const auto a = request_of(1, {1, 2, 3}), b = request_of(2, {5, 6});
  const auto step = [&](const std::vector<Chunk>& chunks) {
    const std::vector<Chunk> got = mirror.chunks_from(frames.frame_of(chunks));
    ASSERT_EQ(got.size(), chunks.size());
    for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], chunks[i]);
  };
  a->window_pages = {{6, 7}, {8, 9}};
  b->window_pages = {{10, 11}, {12, 13}};
  step({{a.get(), 3}, {b.get(), 1}});
  a->num_computed = 3;
  a->tokens.push_back(4);
  a->pages.push_back(14);
  a->window_pages = {{kNoPage, 7, 15}, {kNoPage, 9, 16}};  // given back, and a further one
  step({{a.get(), 1}});
  a->num_computed = 4;
  a->tokens.push_back(5);
  b->window_pages = {{}, {}};  // left out, and back with nothing
  b->pages = {};
  step({{b.get(), 2}, {a.get(), 1}});
}

TEST(MirroredSteps, WhatWasNotToldBeforeIsRefused) {
  StepFrames frames;
  const auto a = request_of(1, {1, 2, 3});
  const std::vector<Chunk> chunks{{a.get(), 3}};
  const std::string first = frames.frame_of(chunks), next = frames.frame_of(chunks);
  MirroredSteps mirror;
  EXPECT_THROW(mirror.chunks_from(next), net::FrameError);
  MirroredSteps other;
  other.chunks_from(first);
  EXPECT_THROW(other.chunks_from(std::string_view(next).substr(0, next.size() - 1)),
               net::FrameError);
}

}  // namespace
}  // namespace slime::engine
