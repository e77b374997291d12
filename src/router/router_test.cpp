#include "router/router.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "router/routed.h"

namespace slime::router {
namespace {

using engine::aborted;
using engine::FinishReason;
using engine::GenerateRequest;
using Cause = FinishReason::Cause;
using Kind = FinishReason::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(Router, ARequestGoesToTheEngineWithTheLeastWork) {
  Routed routed(2);
  std::vector<Told> told(4);
  // 1000 tokens of prompt on the first; the others together have less.
  routed.submit(told[0], request_of(prompt_of(0, 1000), 1));
  for (int i = 1; i < 4; ++i) routed.submit(told[i], request_of(prompt_of(10'000 * i, 10), i));
  EXPECT_EQ(routed.engines[0].num_open(), 1u);
  EXPECT_EQ(routed.engines[1].num_open(), 3u);
}

TEST(Router, SamplesOfAGroupStayTogetherWhereThereIsMuchWork) {
  Routed routed(2);
  std::deque<Told> told;
  for (int i = 0; i < 200; ++i)
    routed.submit(told.emplace_back(), request_of(prompt_of(1000 * i, 10), i));
  ASSERT_EQ(routed.engines[0].num_open(), 100u);
  const std::size_t before = routed.engines[1].num_open();
  for (int i = 0; i < 8; ++i)
    routed.submit(told.emplace_back(), request_of(prompt_of(500'000, 10), i));
  const std::size_t there = routed.engines[1].num_open() - before;
  EXPECT_TRUE(there == 0 || there == 8) << there;
}

TEST(Router, WhereWorkIsNearlyTheSameTheEngineWithFewerRequestsGetsOne) {
  Routed routed(1);
  std::deque<Told> told;
  const uint64_t seed = seed_of_length(40);
  for (int i = 0; i < 10; ++i)
    routed.submit(told.emplace_back(), request_of(prompt_of(1000 * i, 100), seed));
  routed.step();  // what has begun stays where it is
  StepwiseEngine second;
  const EngineId id = *routed.router.join(second);
  for (int i = 10; i < 20; ++i)
    routed.submit(told.emplace_back(), request_of(prompt_of(1000 * i, 115), seed));
  EXPECT_EQ(routed.engines[0].num_open(), 10u);
  EXPECT_EQ(second.num_open(), 10u);  // the tenth came to more tokens, but to fewer requests
  while (routed.engines[0].num_open() + second.num_open() > 0) {
    routed.step();
    second.step();
  }
  routed.router.leave(id);
}

TEST(Router, TheNextTurnOfAConversationGoesWhereItsPrefixIs) {
  Routed routed(3);
  std::vector<Told> told(4);
  const uint64_t seed = seed_of_length(20);
  routed.submit(told[0], request_of(prompt_of(0, 5), seed));
  routed.submit(told[1], request_of(prompt_of(1000, 5), seed));
  routed.submit(told[2], request_of(prompt_of(50'000, 100), seed));
  ASSERT_EQ(routed.engines[2].num_open(), 1u);
  routed.step(20);
  std::vector<TokenId> next = prompt_of(50'000, 100);
  next.insert(next.end(), told[2].all.output_ids.begin(), told[2].all.output_ids.end());
  next.insert(next.end(), {11, 12, 13});
  routed.submit(told[3], request_of(next, 5));
  EXPECT_EQ(routed.engines[2].num_open(), 1u) << "all three are idle, and the others come first";
}

TEST(Router, ADeadEnginesRequestGoesOnElsewhereAndIsOneResponse) {
  Routed routed(2);
  Told told;
  const uint64_t seed = seed_of_length(10);
  routed.submit(told, request_of(prompt_of(0, 4), seed));
  routed.engines[1].version = 7;
  for (int i = 0; i < 3; ++i) routed.engines[0].step();
  routed.engines[0].die();
  ASSERT_THAT(routed.engines[1].requests_seen, SizeIs(1));
  const GenerateRequest& rest = routed.engines[1].requests_seen[0];
  EXPECT_EQ(rest.num_sampled, 3);
  EXPECT_EQ(rest.sampling.max_new_tokens, 997);
  EXPECT_EQ(rest.input_ids.size(), 7u);
  while (told.num_ends == 0) routed.engines[1].step();
  EXPECT_EQ(told.all.output_ids, response_of(seed, 4));
  for (std::size_t i = 0; i < told.all.output_ids.size(); ++i)
    EXPECT_EQ(told.all.output_log_probs[i], -static_cast<float>(told.all.output_ids[i]));
  EXPECT_EQ(told.all.finish->kind, Kind::kStop);
  EXPECT_EQ(told.all.prompt_tokens, 4);
  EXPECT_EQ(told.num_updates, 10);
}

TEST(Router, ACallerThatWaitsForTheEndGetsOneUpdateAndLosesFewTokensWithAnEngine) {
  Routed routed(2);
  Told told;
  const uint64_t seed = seed_of_length(40);
  GenerateRequest request = request_of(prompt_of(0, 4), seed);
  request.stream_interval = 0;
  request.sampling.min_new_tokens = 20;
  routed.submit(told, std::move(request));
  for (int i = 0; i < 35; ++i) routed.engines[0].step();
  routed.engines[0].die();
  ASSERT_THAT(routed.engines[1].requests_seen, SizeIs(1));
  EXPECT_EQ(routed.engines[1].requests_seen[0].num_sampled, 32) << "two updates of sixteen tokens";
  EXPECT_EQ(routed.engines[1].requests_seen[0].sampling.min_new_tokens, 0);
  EXPECT_EQ(told.num_updates, 0);
  while (told.num_ends == 0) routed.engines[1].step();
  EXPECT_EQ(told.num_updates, 1);
  EXPECT_EQ(told.all.output_ids, response_of(seed, 4));
  EXPECT_THAT(told.all.versions, ElementsAre(VersionRun{7, 40}));
}

TEST(Router, RequestsWithoutASeedGetOneThatMovesWithThem) {
  Routed routed(2);
  Told told, other;
  GenerateRequest request = request_of(prompt_of(0, 4), 0);
  request.sampling.sampling_seed.reset();
  routed.submit(told, request);
  routed.submit(other, request);
  ASSERT_THAT(routed.engines[0].requests_seen, SizeIs(1));
  routed.engines[0].die();
  ASSERT_THAT(routed.engines[1].requests_seen, SizeIs(2));
  EXPECT_EQ(routed.engines[1].requests_seen[1].sampling.sampling_seed,
            routed.engines[0].requests_seen[0].sampling.sampling_seed);
  EXPECT_NE(routed.engines[1].requests_seen[0].sampling.sampling_seed,
            routed.engines[1].requests_seen[1].sampling.sampling_seed);
}

TEST(Router, WithoutAnEngineRequestsWaitForOne) {
  Routed routed(1);
  std::vector<Told> told(3);
  const uint64_t seed = seed_of_length(5);
  routed.submit(told[0], request_of(prompt_of(0, 4), seed));
  routed.engines[0].step();
  routed.engines[0].die();
  const engine::RequestHandle second = routed.submit(told[1], request_of(prompt_of(9, 4), seed));
  routed.submit(told[2], request_of(prompt_of(19, 4), seed));
  EXPECT_EQ(routed.router.num_waiting(), 3);
  EXPECT_TRUE(routed.router.abort(second));
  EXPECT_EQ(told[1].all.finish->cause, Cause::kRequested);
  routed.router.leave(routed.ids[0]);
  StepwiseEngine fresh;
  const EngineId id = *routed.router.join(fresh);
  while (fresh.num_open() > 0) fresh.step();
  EXPECT_EQ(told[0].all.output_ids, response_of(seed, 4));
  EXPECT_EQ(told[2].all.output_ids, response_of(seed, 4));
  routed.router.leave(id);
}

TEST(Router, GivingUpEndsWhatWaitsAndWhatRuns) {
  for (const bool waits : {true, false}) {
    Routed routed(1);
    Told told, later;
    routed.submit(told, request_of(prompt_of(0, 4), seed_of_length(9)));
    if (waits) routed.engines[0].die();
    EXPECT_EQ(told.num_ends, 0);
    routed.router.give_up("engine 0 was started five times, and died");
    routed.step();
    ASSERT_EQ(told.num_ends, 1);
    EXPECT_EQ(told.all.finish->cause, Cause::kEngineLost);
    EXPECT_THAT(told.all.finish->message, HasSubstr("five times"));
    routed.submit(later, request_of(prompt_of(0, 4), 1));
    ASSERT_EQ(later.num_ends, 1);
    EXPECT_EQ(later.all.finish->cause, Cause::kEngineLost);
  }
}

TEST(Router, WhatWaitsMovesToAnEngineThatJoinsAndWhatRunsStays) {
  Routed routed(1);
  routed.engines[0].max_running = 4;
  std::deque<Told> told;
  const uint64_t seed = seed_of_length(30);
  for (int i = 0; i < 12; ++i)
    routed.submit(told.emplace_back(), request_of(prompt_of(1000 * i, 10), seed));
  routed.step(3);
  StepwiseEngine fresh;
  const EngineId id = *routed.router.join(fresh);
  routed.engines[0].step();  // reads the aborts
  EXPECT_EQ(routed.engines[0].num_open(), 8u) << "four run, half of eight wait";
  EXPECT_EQ(fresh.num_open(), 4u);
  for (const GenerateRequest& moved : fresh.requests_seen) EXPECT_EQ(moved.num_sampled, 0);
  while (routed.engines[0].num_open() + fresh.num_open() > 0) {
    routed.step();
    fresh.step();
  }
  for (const Told& one : told) EXPECT_EQ(one.all.output_ids, response_of(seed, 10));
  routed.router.leave(id);
}

TEST(Router, AnEngineThatHasRoomTakesWhatWaitsLong) {
  Routed routed(2);
  for (StepwiseEngine& engine : routed.engines) engine.max_running = 2;
  std::deque<Told> told;
  // Short ones on the second engine, long ones on the first, which has more waiting than it runs.
  for (int i = 0; i < 4; ++i) {
    routed.submit(told.emplace_back(),
                  request_of(prompt_of(1000 * i, 10), seed_of_length(i % 2 == 0 ? 40 : 2)));
    routed.submit(told.emplace_back(),
                  request_of(prompt_of(50'000 + 1000 * i, 10), seed_of_length(i == 0 ? 38 : 3)));
  }
  int steps = 0;
  while (routed.engines[0].num_open() + routed.engines[1].num_open() > 0 && ++steps < 1000)
    routed.step();
  for (const Told& one : told) EXPECT_EQ(one.num_ends, 1);
  EXPECT_LE(steps, 85) << "two rounds of the longest";
}

TEST(Router, AnEngineThatLeavesHandsItsRequestsOn) {
  Routed routed(2);
  std::deque<Told> told;
  const uint64_t seed = seed_of_length(30);
  for (int i = 0; i < 6; ++i)
    routed.submit(told.emplace_back(), request_of(prompt_of(1000 * i, 10), seed));
  routed.step(5);
  routed.engines[0].is_paused = true;  // it reads aborts and draws nothing
  std::atomic<bool> has_left{false};
  std::jthread leaves([&] {
    routed.router.leave(routed.ids[0]);
    has_left = true;
  });
  while (!has_left) routed.engines[0].step();
  EXPECT_EQ(routed.engines[1].num_open(), 6u);
  while (routed.engines[1].num_open() > 0) routed.engines[1].step();
  for (const Told& one : told) {
    EXPECT_EQ(one.all.output_ids, response_of(seed, 10));
    EXPECT_EQ(one.all.finish->kind, Kind::kStop);
  }
}

TEST(Router, ARequestThatEnginesDieOfFails) {
  Routed routed(6);
  Told told;
  routed.submit(told, request_of(prompt_of(0, 4), 1));
  for (StepwiseEngine& engine : routed.engines) {
    if (engine.num_open() > 0) engine.die();
  }
  ASSERT_EQ(told.num_ends, 1);
  EXPECT_EQ(told.all.finish->cause, Cause::kEngineFailed);
  EXPECT_THAT(told.all.finish->message, HasSubstr("5 engines were lost"));
}

TEST(Router, LossesWithTokensBetweenThemAreAccidents) {
  Routed routed(8);
  Told told;
  const uint64_t seed = seed_of_length(12);
  routed.submit(told, request_of(prompt_of(0, 4), seed));
  for (StepwiseEngine& engine : routed.engines) {
    ASSERT_EQ(engine.num_open(), 1u);
    engine.step();
    if (&engine != &routed.engines.back()) engine.die();
  }
  while (told.num_ends == 0) routed.engines.back().step();
  EXPECT_EQ(told.all.output_ids, response_of(seed, 4));
}

TEST(Router, AFailureOfTheStepIsTriedOnceMoreElsewhereAndThenReported) {
  Routed routed(2);
  Told told;
  routed.submit(told, request_of(prompt_of(0, 4), 1));
  routed.engines[0].die(Cause::kEngineFailed);
  EXPECT_EQ(told.num_ends, 0);
  ASSERT_EQ(routed.engines[1].num_open(), 1u);
  routed.engines[1].die(Cause::kEngineFailed);
  ASSERT_EQ(told.num_ends, 1);
  EXPECT_EQ(told.all.finish->cause, Cause::kEngineFailed);
}

TEST(Router, AFullEngineIsPassedOverAndWhereAllAreTheCallerHears) {
  Routed routed(2);
  Told told, refused;
  routed.engines[0].refuse_all(aborted(Cause::kQueueFull, "full"));
  routed.submit(told, request_of(prompt_of(0, 4), 1));
  EXPECT_EQ(routed.engines[1].num_open(), 1u);
  routed.engines[1].refuse_all(aborted(Cause::kQueueFull, "full"));
  routed.submit(refused, request_of(prompt_of(0, 4), 1));
  ASSERT_EQ(refused.num_ends, 1);
  EXPECT_EQ(refused.all.finish->cause, Cause::kQueueFull);
}

TEST(Router, ABadRequestIsTheCallersAndSoIsARidThatRuns) {
  Routed routed(2);
  Told told, other, same;
  routed.engines[0].refuse_all(aborted(Cause::kBadRequest, "no"));
  routed.submit(told, request_of(prompt_of(0, 4), 1));
  EXPECT_EQ(told.all.finish->cause, Cause::kBadRequest);
  EXPECT_EQ(routed.engines[1].num_open(), 0u);
  routed.engines[0].refuse_all(std::nullopt);
  GenerateRequest request = request_of(prompt_of(0, 4), seed_of_length(3));
  request.rid = "one";
  routed.submit(other, request);
  routed.submit(same, request);
  EXPECT_EQ(same.all.finish->cause, Cause::kBadRequest);
  routed.step(3);
  EXPECT_EQ(other.all.rid, "one");
  Told again;
  routed.submit(again, request);
  EXPECT_EQ(again.num_ends, 0) << "the rid is free";
}

TEST(Router, AbortsReachRequestsWhereverTheyAre) {
  Routed routed(2);
  std::deque<Told> told;
  const uint64_t seed = seed_of_length(30);
  for (int i = 0; i < 4; ++i) {
    GenerateRequest request = request_of(prompt_of(1000 * i, 10), seed);
    request.rid = (i % 2 == 0 ? "a-" : "b-") + std::to_string(i);
    routed.submit(told.emplace_back(), std::move(request));
  }
  routed.step(2);
  routed.engines[0].die();
  EXPECT_TRUE(routed.router.abort_prefix("a-"));
  routed.step();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(told[i].num_ends, i % 2 == 0 ? 1 : 0) << i;
  EXPECT_EQ(told[0].all.output_ids.size(), 2u) << "it ends with what it has";
  // Aborted, and then its engine is lost before it has read that.
  EXPECT_TRUE(routed.router.abort_all());
  routed.engines[1].die();
  for (const Told& one : told) {
    EXPECT_EQ(one.num_ends, 1);
    EXPECT_EQ(one.all.finish->cause, Cause::kRequested);
  }
}

TEST(Router, AnEngineThatTellsTheEndTwiceIsHeardOnce) {
  Routed routed(1);
  routed.engines[0].ends_twice = true;
  Told told;
  routed.submit(told, request_of(prompt_of(0, 4), seed_of_length(3)));
  routed.step(3);
  EXPECT_EQ(told.num_ends, 1);
}

}  // namespace
}  // namespace slime::router
