#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "engine/scheduler_for_tests.h"

namespace slime::engine {
namespace {

using testing::Bench;
using testing::numbered_prompt;
using testing::remove_one;
using testing::retract_all;

TEST(Scheduler, LongPromptsAreCutIntoChunks) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 10}, 64);
  bench.submit(numbered_prompt(0, 25), 1);
  EXPECT_EQ(bench.step(), 10);
  EXPECT_EQ(bench.step(), 10);
  EXPECT_EQ(bench.step(), 5);
  EXPECT_EQ(bench.finished().size(), 1U);
}

TEST(Scheduler, PromptsAndDecodesShareAStep) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 10}, 64);
  bench.submit(numbered_prompt(0, 8), 20);
  bench.step();
  bench.submit(numbered_prompt(100, 30), 5);
  EXPECT_EQ(bench.step(), 11);
}

TEST(Scheduler, PromptsTakeFewerTokensInStepsThatDecode) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 10, .prefill_beside_decode = 3}, 64);
  bench.submit(numbered_prompt(0, 4), 5);
  EXPECT_EQ(bench.step(), 4);
  bench.submit(numbered_prompt(100, 17), 5);
  EXPECT_EQ(bench.step(), 1 + 3);
  EXPECT_EQ(bench.step(), 1 + 3);
  EXPECT_EQ(bench.step(), 1 + 3);
  EXPECT_EQ(bench.step(), 1 + 3);  // the last token of the first request
  EXPECT_EQ(bench.step(), 5);      // nothing decodes: the rest of the prompt
  EXPECT_EQ(bench.step(), 1);
}

TEST(Scheduler, AGroupComputesItsPromptOnce) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 100}, 64);
  for (int i = 0; i < 8; ++i) bench.submit(numbered_prompt(0, 22), 3);
  EXPECT_EQ(bench.step(), 22) << "the siblings wait for the first one";
  EXPECT_EQ(bench.step(), 1 + 7) << "then each computes the prompt's last token alone";
  bench.run_to_end();
  EXPECT_EQ(bench.finished().size(), 8U);
}

TEST(Scheduler, SiblingsDoNotHoldUpOthers) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 100}, 64);
  bench.submit(numbered_prompt(0, 22), 3);
  bench.submit(numbered_prompt(0, 22), 3);
  bench.submit(numbered_prompt(500, 12), 3);
  EXPECT_EQ(bench.step(), 22 + 12);
}

TEST(Scheduler, PromptsWithoutCacheAreComputedEachTime) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 100, .shares_prefixes = false}, 64);
  bench.submit(numbered_prompt(0, 22), 3);
  bench.submit(numbered_prompt(0, 22), 3);
  EXPECT_EQ(bench.step(), 44);
}

TEST(Scheduler, UnderPressureTheNewestGivesUpItsPagesAndLosesNoToken) {
  // 12 pages of 4 tokens for three requests that grow to 28 tokens each.
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 100}, 12);
  std::vector<Request*> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(&bench.submit(numbered_prompt(100 * i, 8), 20));
  int64_t most_retractions = 0;
  while (bench.finished().size() < 3) {
    ASSERT_GT(bench.step(), 0);
    for (const Request* request : bench.scheduler().all())
      most_retractions = std::max(most_retractions, request->num_retractions);
  }
  EXPECT_GT(most_retractions, 0);
  Bench roomy({.page_tokens = 4, .max_prefill_tokens = 100}, 100);
  for (int i = 0; i < 3; ++i) roomy.submit(numbered_prompt(100 * i, 8), 20);
  roomy.run_to_end();
  EXPECT_EQ(bench.finished(), roomy.finished());
}

TEST(Scheduler, StepsWithoutRequestsChangeNothing) {
  // How often an idle engine looks depends on when others call it; who is admitted must not.
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 100}, 17);
  for (int i = 0; i < 1000; ++i) bench.step();
  bench.submit(numbered_prompt(0, 4), 60);
  bench.step();
  bench.submit(numbered_prompt(100, 48), 4);
  EXPECT_EQ(bench.step(), 1) << "the second one waits: the first may grow";
}

TEST(Scheduler, RetractAllKeepsTheOrder) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 100}, 64);
  for (int i = 0; i < 3; ++i) bench.submit(numbered_prompt(100 * i, 8), 20);
  bench.step();
  bench.scheduler().retract_all(false);
  bench.tree().clear();
  EXPECT_EQ(bench.pool().num_free(), 64);
  bench.submit(numbered_prompt(900, 8), 20);
  const auto all = bench.scheduler().all();
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->client.rid, std::to_string(i));
  bench.run_to_end();
}

TEST(Scheduler, DroppedRequestsWaitBehindTheOthersInTheirOrder) {
  Bench bench({.page_tokens = 4, .max_running_requests = 2, .max_prefill_tokens = 100}, 64);
  for (int i = 0; i < 4; ++i) bench.submit(numbered_prompt(100 * i, 8), 20);
  bench.step();
  ASSERT_EQ(bench.scheduler().num_waiting(), 2);
  bench.scheduler().drop_all();
  bench.tree().clear();
  EXPECT_EQ(bench.pool().num_free(), 64);
  std::string order;
  for (const Request* request : bench.scheduler().all()) order += request->client.rid;
  EXPECT_EQ(order, "2301");
  bench.run_to_end();
}

TEST(Scheduler, RandomSchedulesNeverLeakOrMixPages) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    int64_t draws = 0;
    const auto below = [&](int64_t limit) {
      return static_cast<int64_t>(uniform(seed, 1, draws++) * static_cast<double>(limit));
    };
    const int64_t page_tokens = 1 + below(6);
    const int64_t num_pages = 8 + below(40);
    Bench bench({.page_tokens = page_tokens,
                 .max_running_requests = 1 + below(8),
                 .max_prefill_tokens = 1 + below(30),
                 .prefill_beside_decode = below(20),
                 .shares_prefixes = below(5) > 0},
                num_pages);
    for (int event = 0; event < 300; ++event) {
      const int64_t what = below(10);
      if (what < 4) {
        // Few distinct tokens, so that prefixes meet at every place.
        const int64_t room = num_pages * page_tokens;
        std::vector<TokenId> prompt(1 + below(std::min<int64_t>(room - 1, 30)));
        for (TokenId& id : prompt) id = static_cast<TokenId>(below(8) == 0 ? 1 + below(2) : 0);
        const int64_t max_new =
            1 + below(std::min<int64_t>(room - static_cast<int64_t>(prompt.size()), 25));
        for (int64_t copies = 1 + below(3); copies > 0; --copies) bench.submit(prompt, max_new);
      } else if (what == 4) {
        remove_one(bench, below);
      } else if (what == 5 && below(4) == 0) {
        retract_all(bench, below);
      } else {
        bench.step();
      }
      bench.check_pages();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", event " << event;
    }
    bench.run_to_end();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    EXPECT_EQ(bench.pool().num_available(), num_pages);
    bench.tree().clear();
    EXPECT_EQ(bench.pool().num_free(), num_pages) << "seed " << seed;
  }
}

constexpr SchedulerConfig kWithStates{.page_tokens = 4, .max_prefill_tokens = 100};

TEST(SchedulerWithStates, AGroupComputesItsPromptOnce) {
  Bench bench(kWithStates, 64, 32);
  for (int i = 0; i < 8; ++i) bench.submit(numbered_prompt(0, 22), 3);
  EXPECT_EQ(bench.step(), 21) << "the first one halts before the last token, for a snapshot";
  EXPECT_EQ(bench.step(), 1 + 7) << "then each computes the prompt's last token alone";
  bench.run_to_end();
  EXPECT_EQ(bench.finished().size(), 8U);
}

TEST(SchedulerWithStates, AFurtherTurnGoesOnFromTheEndOfTheOneBefore) {
  Bench bench(kWithStates, 64, 8);
  bench.submit(numbered_prompt(0, 10), 5);
  bench.run_to_end();
  auto prompt = bench.finished().at("0");
  prompt.insert(prompt.end(), {7, 8, 9});
  const Request& next = bench.submit(prompt, 2);
  bench.step();
  EXPECT_EQ(next.cached_tokens, 14) << "all but the token whose successor was never sampled";
  bench.run_to_end();
}

TEST(SchedulerWithStates, WherePromptsPartASnapshotIsLeftForThoseThatFollow) {
  Bench bench(kWithStates, 64, 8);
  const auto prompt = [](TokenId last) {
    auto tokens = numbered_prompt(0, 30);
    for (TokenId i = 0; i < 9; ++i) tokens.push_back(last + i);
    return tokens;
  };
  const auto cached = [&](TokenId last) {
    const Request& request = bench.submit(prompt(last), 2);
    bench.step();
    const int64_t tokens = request.cached_tokens;
    bench.run_to_end();
    return tokens;
  };
  EXPECT_EQ(cached(100), 0);
  EXPECT_EQ(cached(200), 0) << "the tree knows 30 tokens, and no state behind them";
  EXPECT_EQ(cached(300), 30);
}

TEST(SchedulerWithStates, WhoWaitsForAPartOfAPromptFindsASnapshotThere) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 10}, 64, 8);
  auto longer = numbered_prompt(0, 30), other = longer;
  longer.insert(longer.end(), {101, 102, 103, 104, 105, 106});
  other.insert(other.end(), {201, 202, 203});
  bench.submit(longer, 4);
  bench.step();
  const Request& second = bench.submit(other, 4);
  EXPECT_FALSE(second.admitted.has_value());
  while (!second.admitted.has_value()) ASSERT_GT(bench.step(), 0);
  EXPECT_EQ(second.cached_tokens, 30);
  bench.run_to_end();
  EXPECT_EQ(bench.finished().size(), 2U);
}

TEST(SchedulerWithStates, SnapshotsGiveWayToRunningRequests) {
  Bench bench({.page_tokens = 4, .max_running_requests = 8, .max_prefill_tokens = 100}, 64, 3);
  for (int i = 0; i < 12; ++i) bench.submit(numbered_prompt(100 * (i / 3), 9), 6);
  bench.run_to_end();
  EXPECT_EQ(bench.finished().size(), 12U);
  bench.tree().clear();
  EXPECT_EQ(bench.states().num_free(), 3);
}

TEST(SchedulerWithStates, PromptsWithoutCacheAreComputedEachTime) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 100, .shares_prefixes = false}, 64, 8);
  bench.submit(numbered_prompt(0, 22), 3);
  bench.submit(numbered_prompt(0, 22), 3);
  EXPECT_EQ(bench.step(), 44);
  bench.run_to_end();
  EXPECT_EQ(bench.states().num_free(), 8);
}

TEST(SchedulerWithStates, KeptRequestsKeepTheirStatesAndBegunPromptsBeginAnew) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 6}, 64, 8);
  Request& drawing = bench.submit(numbered_prompt(0, 5), 20);
  bench.step();
  bench.step();
  Request& begun = bench.submit(numbered_prompt(100, 22), 4);
  bench.step();
  ASSERT_GT(begun.num_computed, 0);
  const int64_t computed = drawing.num_computed;
  bench.tree().clear();
  bench.pool().weights_changed();
  bench.scheduler().keep_running();
  EXPECT_EQ(drawing.num_computed, computed);
  EXPECT_EQ(begun.num_computed, 0);
  EXPECT_GE(begun.state, 0);
  bench.run_to_end();
  EXPECT_EQ(bench.finished().size(), 2U);
}

TEST(SchedulerWithStates, NothingIsLostUnderPressureOfPagesAndStates) {
  for (const int64_t num_states : {2, 3, 5, 40}) {
    Bench tight({.page_tokens = 4, .max_running_requests = 6, .max_prefill_tokens = 10}, 16,
                num_states);
    Bench roomy({.page_tokens = 4, .max_prefill_tokens = 1000}, 400, 100);
    for (int i = 0; i < 20; ++i) {
      auto prompt = numbered_prompt(0, 3 + i % 5);
      for (int k = 0; k < i % 7; ++k) prompt.push_back(static_cast<TokenId>(50 + i / 3 + k));
      tight.submit(prompt, 3 + i % 11);
      roomy.submit(prompt, 3 + i % 11);
    }
    tight.run_to_end();
    roomy.run_to_end();
    EXPECT_EQ(tight.finished(), roomy.finished()) << num_states;
  }
}

TEST(Scheduler, PrefixesAreSharedAmongRequestsOfOneSaltAlone) {
  Bench bench({.page_tokens = 4, .max_prefill_tokens = 100}, 64);
  bench.submit(numbered_prompt(0, 22), 3, "red");
  bench.submit(numbered_prompt(0, 22), 3, "blue");
  bench.submit(numbered_prompt(0, 22), 3, "red");
  bench.submit(numbered_prompt(0, 22), 3);
  EXPECT_EQ(bench.step(), 3 * 22) << "a red one waits for the other";
  bench.run_to_end();
  EXPECT_EQ(bench.finished().size(), 4U);
  for (const char* salt : {"red", "blue", ""}) {
    bench.submit(numbered_prompt(0, 22), 1, salt);
    EXPECT_EQ(bench.step(), 1) << salt;
  }
  bench.submit(numbered_prompt(0, 22), 1, "green");
  EXPECT_EQ(bench.step(), 22);
}

TEST(Scheduler, BeyondTheRotarySwitchARequestIsComputedAnew) {
  Bench bench({.page_tokens = 4,
               .max_prefill_tokens = 100,
               .rotary_switch = {.length = 10, .offset = 1000}},
              64);
  const Request& request = bench.submit(numbered_prompt(0, 8), 6);
  EXPECT_EQ(bench.step(), 8);
  EXPECT_EQ(bench.step(), 1);
  EXPECT_EQ(bench.step(), 1);  // the tenth
  EXPECT_EQ(request.rotary_offset, 0);
  EXPECT_EQ(bench.step(), 11);
  EXPECT_EQ(request.rotary_offset, 1000);
  EXPECT_EQ(bench.step(), 1);
  bench.run_to_end();
  bench.submit(numbered_prompt(0, 8), 1);
  EXPECT_EQ(bench.step(), 1) << "short keys are still there";
  bench.submit(numbered_prompt(0, 12), 1);
  EXPECT_EQ(bench.step(), 4) << "a long one reads those of the long side, two pages";
}

TEST(Scheduler, RandomSaltsAndSwitchesNeverMixKeys) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    uint64_t count = 0;
    const auto below = [&](int64_t bound) {
      return static_cast<int64_t>(uniform(seed, 3, count++) * static_cast<double>(bound));
    };
    Bench bench({.page_tokens = 4,
                 .max_running_requests = 6,
                 .max_prefill_tokens = 9,
                 .rotary_switch = {.length = 12, .offset = 500}},
                24);
    for (int i = 0; i < 60; ++i) {
      const std::string salt(static_cast<std::size_t>(below(3)), 's');
      bench.submit(numbered_prompt(0, 1 + below(20)), 1 + below(12), salt);
      for (int64_t steps = below(4); steps > 0; --steps) bench.step();
      if (below(15) == 0) remove_one(bench, below);
      if (below(25) == 0) retract_all(bench, below);
    }
    bench.run_to_end();
  }
}

}  // namespace
}  // namespace slime::engine
