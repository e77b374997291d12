// What all engines of a router do together, and those that miss it.

#include <gmock/gmock.h>

#include "router/routed.h"

namespace slime::router {
namespace {

using Cause = engine::FinishReason::Cause;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Router, LoadsOfItsEnginesAddUpWithTheirDrafts) {
  Routed routed(2);
  routed.engines[0].drafts = {.num_drafted = 5, .num_kept = 2, .num_steps = 3};
  routed.engines[1].drafts = {.num_drafted = 1, .num_kept = 1, .num_steps = 4};
  const auto load = routed.router.load();
  ASSERT_TRUE(load);
  EXPECT_EQ(load->num_kv_tokens, 2000);
  EXPECT_EQ(load->drafts, (DraftCounts{.num_drafted = 6, .num_kept = 3, .num_steps = 7}));
}

TEST(Router, APauseThatAbortsAndAnUpdateThatAbortsEndRequestsForGood) {
  for (const bool by_update : {false, true}) {
    Routed routed(2);
    std::vector<Told> told(2);
    for (Told& one : told) routed.submit(one, request_of(prompt_of(0, 4), seed_of_length(9)));
    routed.step();
    if (by_update) {
      EXPECT_TRUE(routed.router.update_weights(
          {.version = 8, .source = {}, .running = engine::RunningRequests::kAbort}));
    } else {
      EXPECT_TRUE(routed.router.pause(engine::PauseMode::kAbort));
    }
    for (const Told& one : told) {
      ASSERT_EQ(one.num_ends, 1);
      EXPECT_EQ(one.all.finish->cause, Cause::kRequested);
      EXPECT_EQ(one.all.output_ids.size(), 1u);
    }
  }
}

TEST(Router, AnEngineThatJoinsIsPausedAndAsleepLikeTheOthers) {
  Routed routed(1);
  EXPECT_TRUE(routed.router.pause(engine::PauseMode::kInPlace));
  EXPECT_TRUE(routed.router.sleep());
  StepwiseEngine fresh;
  const EngineId id = *routed.router.join(fresh);
  EXPECT_TRUE(fresh.is_paused);
  EXPECT_TRUE(fresh.is_asleep);
  EXPECT_TRUE(routed.router.wake());
  EXPECT_TRUE(routed.router.resume());
  EXPECT_FALSE(fresh.is_paused);
  EXPECT_FALSE(fresh.is_asleep);
  routed.router.leave(id);
}

TEST(Router, AnEngineThatMissedAnUpdateServesNothingUntilItHasCaughtUp) {
  Routed routed(2);
  routed.engines[0].refuses_updates = true;
  const auto updated = routed.router.update_weights({.version = 8});
  ASSERT_FALSE(updated);
  EXPECT_THAT(updated.error().message, HasSubstr("does not fit"));
  EXPECT_EQ(routed.router.weight_version(), 8);
  std::deque<Told> told;
  for (int i = 0; i < 4; ++i)
    routed.submit(told.emplace_back(), request_of(prompt_of(1000 * i, 10), 1));
  EXPECT_EQ(routed.engines[0].num_open(), 0u);
  StepwiseEngine old;  // of version 7
  const EngineId id = *routed.router.join(old);
  EXPECT_EQ(old.num_open(), 0u);
  routed.engines[0].refuses_updates = false;
  EXPECT_TRUE(routed.router.update_weights({.version = 9}));
  for (int i = 0; i < 8; ++i)
    routed.submit(told.emplace_back(), request_of(prompt_of(1000 * i + 500'000, 10), 1));
  EXPECT_GT(routed.engines[0].num_open(), 0u);
  EXPECT_GT(old.num_open(), 0u);
  for (auto* engine : {&routed.engines[0], &routed.engines[1], &old}) engine->die();
  routed.router.leave(id);
  EXPECT_TRUE(routed.router.abort_all());
}

TEST(Router, AnUpdateOfADeadEngineIsNoErrorAndTheOwnerHearsOfItOnce) {
  const SystemClock clock;
  Router router({}, clock);
  std::vector<EngineId> lost;
  router.set_on_lost([&](EngineId id) { lost.push_back(id); });
  StepwiseEngine alive, dead;
  const EngineId first = *router.join(alive), second = *router.join(dead);
  dead.die();
  EXPECT_TRUE(router.pause(engine::PauseMode::kInPlace));
  EXPECT_TRUE(router.update_weights({.version = 8}));
  EXPECT_TRUE(router.resume());
  EXPECT_THAT(lost, ElementsAre(second));
  router.leave(second);
  router.leave(first);
}

}  // namespace
}  // namespace slime::router
