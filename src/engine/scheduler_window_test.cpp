/// Requests that give pages back while they run: where every layer has a window, and where some have one
/// and others see all tokens.

#include <gtest/gtest.h>

#include "core/random.h"
#include "engine/scheduler.h"
#include "engine/scheduler_for_tests.h"

namespace slime::engine {
namespace {

using testing::Bench;
using testing::keys_of;
using testing::numbered_prompt;
using testing::remove_one;
using testing::retract_all;

constexpr SchedulerConfig kWithWindow{
    .page_tokens = 4, .max_prefill_tokens = 10, .window = {.tokens = 12, .block_tokens = 8}};

int64_t pages_held(const std::vector<PageId>& table) {
  return std::ranges::count_if(table, [](PageId page) { return page != kNoPage; });
}

int64_t pages_held(const Request& request) { return pages_held(request.pages); }

TEST(SchedulerWithWindow, ALongResponseRunsInAFewPages) {
  // 12 tokens of the window, 2 x 8 of blocks, 10 of a chunk: 10 pages.
  Bench bench(kWithWindow, 10);
  const Request& request = bench.submit(numbered_prompt(0, 6), 500);
  while (bench.finished().empty()) {
    ASSERT_EQ(pages_held(request) <= 6, true) << "12 + 1 tokens and at most a block";
    ASSERT_GT(bench.step(), 0);
  }
  EXPECT_EQ(bench.scheduler().num_tokens_given_back(), (505 - 12) / 8 * 8);
  Bench roomy({.page_tokens = 4, .max_prefill_tokens = 10}, 200);
  roomy.submit(numbered_prompt(0, 6), 500);
  roomy.run_to_end();
  EXPECT_EQ(bench.finished(), roomy.finished());
}

TEST(SchedulerWithWindow, ALongPromptLeavesItsPagesToTheTreeUntilTheyAreNeeded) {
  Bench bench(kWithWindow, 64);
  const Request& first = bench.submit(numbered_prompt(0, 100), 2);
  while (first.num_computed < 100) bench.step();
  EXPECT_LE(pages_held(first), 6);
  EXPECT_EQ(bench.tree().num_pages(), 25) << "all of the prompt";
  bench.run_to_end();
  auto shorter = numbered_prompt(0, 50);
  shorter.push_back(7);
  const Request& second = bench.submit(shorter, 2);
  bench.step();
  EXPECT_EQ(second.cached_tokens, 50);
  bench.run_to_end();
}

/// Who waits joins when less than a page of it is missing: chunks that gave pages back are recorded.
TEST(SchedulerWithWindow, AGroupComputesItsPromptOnceButForItsLastPage) {
  for (const int64_t length : {28, 29, 30, 31, 32, 33, 34, 35, 36, 37}) {
    Bench bench(kWithWindow, 64);
    for (int i = 0; i < 8; ++i) bench.submit(numbered_prompt(0, length), 3);
    int64_t steps = 0, computed = 0;
    while (bench.scheduler().num_running() < 8 && ++steps < 20) computed += bench.step();
    EXPECT_LE(computed, length + 1 + 7 * 4);
    bench.run_to_end();
    EXPECT_EQ(bench.finished().size(), 8U);
  }
}

TEST(SchedulerWithWindow, AFurtherTurnGoesOnFromTheEndOfTheOneBefore) {
  Bench bench(kWithWindow, 64);
  bench.submit(numbered_prompt(0, 10), 60);
  bench.run_to_end();
  EXPECT_LE(bench.tree().num_pages(), 3 + 6) << "its prompt and the last window";
  auto prompt = bench.finished().at("0");
  prompt.insert(prompt.end(), {7, 8, 9});
  const Request& next = bench.submit(prompt, 2);
  bench.step();
  EXPECT_EQ(next.cached_tokens, 69) << "all but the token whose successor was never sampled";
  EXPECT_LE(pages_held(next), 6 + 1);
  bench.run_to_end();
  EXPECT_EQ(bench.tree().match(keys_of(numbered_prompt(0, 10))).num_tokens, 10);
  EXPECT_EQ(bench.tree().match(keys_of(std::span(prompt).first(40))).num_tokens, 8)
      << "the middle of the response is gone";
}

/// A client that cut a response off goes on with all that it has, whatever its length beside blocks.
void expect_resumed(const SchedulerConfig& config, int64_t num_pages) {
  for (int64_t length = 20; length < 60; ++length) {
    Bench bench(config, num_pages);
    bench.submit(numbered_prompt(0, 10), length);
    bench.run_to_end();
    auto known = bench.finished().at("0");
    known.pop_back();
    const Request& next = bench.submit(known, 2);
    bench.step();
    EXPECT_EQ(next.cached_tokens, static_cast<int64_t>(known.size()) - 1) << length;
    bench.run_to_end();
  }
}

TEST(SchedulerWithWindow, AResponseThatWasCutOffIsFoundWhatsoeverItsLength) {
  expect_resumed(kWithWindow, 64);
}

TEST(SchedulerWithWindow, AdmitsRequestsWhoseLengthsTogetherAreFarAboveTheCache) {
  // 400 tokens of cache; 8 requests of 300 tokens.
  Bench bench(kWithWindow, 100);
  for (int i = 0; i < 8; ++i) bench.submit(numbered_prompt(100 * i, 8), 292);
  int64_t most = 0, retractions = 0;
  while (bench.finished().size() < 8) {
    ASSERT_GT(bench.step(), 0);
    most = std::max(most, bench.scheduler().num_running());
    for (const Request* request : bench.scheduler().all()) retractions += request->num_retractions;
  }
  EXPECT_EQ(most, 8);
  EXPECT_EQ(retractions, 0);
}

TEST(SchedulerWithWindow, KeptRequestsOfOlderWeightsStayOutOfTheTree) {
  Bench bench(kWithWindow, 64);
  Request& drawing = bench.submit(numbered_prompt(0, 5), 90);
  for (int i = 0; i < 30; ++i) bench.step();
  bench.tree().clear();
  bench.pool().weights_changed();
  bench.scheduler().keep_running();
  // The pages that were begun before are behind the window by now.
  for (int i = 0; i < 40; ++i) bench.step();
  EXPECT_TRUE(drawing.outlives_weights);
  bench.run_to_end();
  EXPECT_EQ(bench.tree().num_pages(), 0);
}

constexpr SchedulerConfig kWithGroups{.page_tokens = 4,
                                      .max_prefill_tokens = 10,
                                      .window = {.tokens = 12, .block_tokens = 8, .num_groups = 3}};

int64_t most_held_of_windows(const Request& request) {
  int64_t most = 0;
  for (const auto& table : request.window_pages) most = std::max(most, pages_held(table));
  return most;
}

TEST(SchedulerWithGroups, ALongResponseHoldsAllPagesOfOneTableAndFewOfTheOthers) {
  // 127 pages of layers that see all, and for each group 10: 12 tokens, 2 x 8 of blocks, 10 of a chunk.
  ASSERT_EQ(kWithGroups.window.most_pages(506, 10, 4), 127 + 3 * 10);
  Bench bench(kWithGroups, 127 + 3 * 10);
  const Request& request = bench.submit(numbered_prompt(0, 6), 500);
  while (bench.finished().empty()) {
    ASSERT_LE(most_held_of_windows(request), 6) << "12 + 1 tokens and at most a block";
    ASSERT_EQ(pages_held(request.pages), static_cast<int64_t>(request.pages.size()));
    ASSERT_GT(bench.step(), 0);
  }
  EXPECT_EQ(bench.scheduler().num_tokens_given_back(), (505 - 12) / 8 * 8);
  Bench roomy({.page_tokens = 4, .max_prefill_tokens = 10}, 200);
  roomy.submit(numbered_prompt(0, 6), 500);
  roomy.run_to_end();
  EXPECT_EQ(bench.finished(), roomy.finished());
}

TEST(SchedulerWithGroups, APromptLeavesAllItsPagesToTheTreeUntilTheyAreNeeded) {
  Bench bench(kWithGroups, 200);
  const Request& first = bench.submit(numbered_prompt(0, 100), 2);
  while (first.num_computed < 100) bench.step();
  EXPECT_LE(most_held_of_windows(first), 6);
  EXPECT_EQ(bench.tree().num_pages(), 4 * 25);
  bench.run_to_end();
  auto shorter = numbered_prompt(0, 50);
  shorter.push_back(7);
  const Request& second = bench.submit(shorter, 2);
  bench.step();
  EXPECT_EQ(second.cached_tokens, 50);
  EXPECT_LE(most_held_of_windows(second), 6);
  bench.run_to_end();
}

TEST(SchedulerWithGroups, AGroupOfSamplesComputesItsPromptOnceButForItsLastPage) {
  for (const int64_t length : {28, 29, 30, 31, 32, 33, 34, 35, 36, 37}) {
    Bench bench(kWithGroups, 200);
    for (int i = 0; i < 8; ++i) bench.submit(numbered_prompt(0, length), 3);
    int64_t steps = 0, computed = 0;
    while (bench.scheduler().num_running() < 8 && ++steps < 20) computed += bench.step();
    EXPECT_LE(computed, length + 1 + 7 * 4);
    bench.run_to_end();
    EXPECT_EQ(bench.finished().size(), 8U);
  }
}

TEST(SchedulerWithGroups, AFurtherTurnGoesOnFromTheEndOfTheOneBefore) {
  Bench bench(kWithGroups, 200);
  bench.submit(numbered_prompt(0, 10), 60);
  bench.run_to_end();
  EXPECT_LE(bench.tree().num_pages(), 18 + 3 * (3 + 6)) << "all, its prompt and the last window";
  auto prompt = bench.finished().at("0");
  prompt.insert(prompt.end(), {7, 8, 9});
  const Request& next = bench.submit(prompt, 2);
  bench.step();
  EXPECT_EQ(next.cached_tokens, 69) << "all but the token whose successor was never sampled";
  EXPECT_LE(most_held_of_windows(next), 6 + 1);
  bench.run_to_end();
  EXPECT_EQ(bench.tree().match(keys_of(numbered_prompt(0, 10))).num_tokens, 10);
  EXPECT_EQ(bench.tree().match(keys_of(std::span(prompt).first(40))).num_tokens, 12)
      << "the page in which the prompt ended was filled; those behind it are gone";
}

TEST(SchedulerWithGroups, AResponseThatWasCutOffIsFoundWhatsoeverItsLength) {
  expect_resumed(kWithGroups, 200);
}

TEST(SchedulerWithGroups, UnderPressureNoTokenIsLost) {
  Bench tight(kWithGroups, 64), roomy(kWithGroups, 1000);
  int64_t retractions = 0;
  for (Bench* bench : {&tight, &roomy})
    for (int i = 0; i < 12; ++i) bench->submit(numbered_prompt(10 * (i / 3), 20 + i), 60 - 2 * i);
  while (tight.finished().size() < 12) {
    ASSERT_GT(tight.step(), 0);
    for (const Request* request : tight.scheduler().all()) retractions += request->num_retractions;
  }
  roomy.run_to_end();
  EXPECT_GT(retractions, 0);
  EXPECT_EQ(tight.finished(), roomy.finished());
}

TEST(SchedulerWithGroups, KeptRequestsOfOlderWeightsStayOutOfTheTree) {
  Bench bench(kWithGroups, 200);
  Request& drawing = bench.submit(numbered_prompt(0, 5), 90);
  for (int i = 0; i < 30; ++i) bench.step();
  bench.tree().clear();
  bench.pool().weights_changed();
  bench.scheduler().keep_running();
  for (int i = 0; i < 40; ++i) bench.step();
  EXPECT_TRUE(drawing.outlives_weights);
  bench.run_to_end();
  EXPECT_EQ(bench.tree().num_pages(), 0);
  EXPECT_EQ(bench.pool().num_free(), 200);
}

/// `num_groups`: of layers with a window; 0: every layer has it.
void run_random_schedules(int64_t num_groups, uint64_t stream) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    int64_t draws = 0;
    const auto below = [&](int64_t limit) {
      return static_cast<int64_t>(uniform(seed, stream, draws++) * static_cast<double>(limit));
    };
    const int64_t page = 1 + below(6), chunk = 1 + below(30);
    const PageWindow window{
        .tokens = 1 + below(40), .block_tokens = page * (1 + below(4)), .num_groups = num_groups};
    // The longest one has 150 tokens.
    const int64_t longest = num_groups > 0 ? 150 : 1 << 20;
    const int64_t num_pages =
        window.most_pages(longest, chunk, page) + 1 + below(40 * window.num_tables());
    Bench bench({.page_tokens = page,
                 .max_running_requests = 1 + below(8),
                 .max_prefill_tokens = chunk,
                 .shares_prefixes = below(5) > 0,
                 .window = window},
                num_pages);
    for (int event = 0; event < 200; ++event) {
      const int64_t what = below(10);
      if (what < 3) {
        std::vector<TokenId> prompt(1 + below(90));
        for (TokenId& id : prompt) id = static_cast<TokenId>(below(12) == 0 ? 1 + below(2) : 0);
        for (int64_t copies = 1 + below(3); copies > 0; --copies)
          bench.submit(prompt, 1 + below(60));
      } else if (what == 3) {
        remove_one(bench, below);
      } else if (what == 4 && below(4) == 0) {
        retract_all(bench, below);
      } else if (what == 5 && below(4) == 0) {
        bench.tree().clear();
        bench.pool().weights_changed();
        bench.scheduler().keep_running();
      } else {
        bench.step();
      }
      bench.check_pages();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", event " << event;
    }
    bench.run_to_end();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    EXPECT_EQ(bench.pool().num_available(), num_pages);
    bench.tree().evict_until_free(num_pages);
    EXPECT_EQ(bench.pool().num_free(), num_pages) << "seed " << seed;
    EXPECT_EQ(bench.tree().num_pages(), 0);
  }
}

TEST(SchedulerWithWindow, RandomSchedulesNeverLeakOrMixPages) { run_random_schedules(0, 2); }

TEST(SchedulerWithGroups, RandomSchedulesNeverLeakOrMixPages) {
  for (const int64_t num_groups : {1, 2, 5})
    run_random_schedules(num_groups, 2 + static_cast<uint64_t>(num_groups));
}

}  // namespace
}  // namespace slime::engine
