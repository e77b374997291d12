// One file because its tests share the pretend device.

#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "core/random.h"

namespace slime::engine {
namespace {

/// A scheduler with a pretend device: every cache slot remembers which prefix it was computed for,
/// so a wrong page, a stale copy or a lost token shows.
class Bench {
 public:
  /// `num_states` 0: layers keep none.
  explicit Bench(SchedulerConfig config, int64_t num_pages, int64_t num_states = 0)
      : config_(config),
        pool_(num_pages),
        states_(num_states),
        tree_(pool_, config.page_tokens, num_states > 0 ? &states_ : nullptr, config.window),
        slots_(num_pages * config.page_tokens, 0),
        state_contents_(num_states, 0),
        scheduler_(
            config, pool_, tree_, clock_,
            [this](PageId from, PageId to) {
              std::copy_n(slots_.begin() + from * config_.page_tokens, config_.page_tokens,
                          slots_.begin() + to * config_.page_tokens);
            },
            num_states > 0 ? &states_ : nullptr,
            [this](StateId from, StateId to) { state_contents_[to] = state_contents_[from]; }) {}

  Request& submit(std::vector<TokenId> prompt, int64_t max_new_tokens) {
    auto request = std::make_unique<Request>();
    request->client.rid = std::to_string(num_submitted_++);
    request->prompt_length = static_cast<int64_t>(prompt.size());
    request->max_tokens = request->prompt_length + max_new_tokens;
    request->tokens = std::move(prompt);
    Request& added = *request;
    scheduler_.add(std::move(request));
    return added;
  }

  /// One step; returns how many tokens were computed. Checks what each token would read.
  int64_t step() {
    int64_t computed = 0;
    step(computed);
    return computed;
  }
  void step(int64_t& num_tokens) {
    const auto chunks = scheduler_.plan_step();
    for (const Chunk& chunk : chunks) {
      Request& request = *chunk.request;
      num_tokens += chunk.num_tokens;
      EXPECT_GT(chunk.num_tokens, 0);
      EXPECT_LE(request.num_computed + chunk.num_tokens,
                static_cast<int64_t>(request.tokens.size()));
      advance_state(chunk);
      for (int64_t i = 0; i < chunk.num_tokens; ++i) {
        const int64_t position = request.num_computed + i;
        slots_[slot_of(request, position)] = fingerprint(request, position);
      }
    }
    for (const Chunk& chunk : chunks) {
      for (int64_t position = first_read(*chunk.request);
           position < chunk.request->num_computed + chunk.num_tokens; ++position) {
        ASSERT_NE(chunk.request->pages[position / config_.page_tokens], kNoPage) << position;
        EXPECT_EQ(slots_[slot_of(*chunk.request, position)], fingerprint(*chunk.request, position))
            << "request " << chunk.request->client.rid << " reads a foreign key at position "
            << position;
      }
    }
    for (const Chunk& chunk : chunks) {
      const bool completes = chunk.completes();
      scheduler_.advance(chunk);
      if (!completes) continue;
      Request& request = *chunk.request;
      request.tokens.push_back(next_token(request));
      if (static_cast<int64_t>(request.tokens.size()) < request.max_tokens) continue;
      finished_[request.client.rid] = request.tokens;
      scheduler_.remove(request);
    }
    check_pages();
  }

  /// Every page is free, in the tree, or read by a running request, and counted once for each.
  void check_pages() {
    std::map<PageId, int64_t> holders;
    for (const Request* request : scheduler_.all()) {
      for (const PageId page : request->pages)
        if (page != kNoPage) ++holders[page];
    }
    int64_t num_held = 0;
    int64_t num_in_tree = 0;
    for (PageId page = 0; page < pool_.num_pages(); ++page) {
      const int64_t in_tree = pool_.num_holders(page) - holders[page];
      EXPECT_TRUE(in_tree == 0 || in_tree == 1) << "page " << page;
      num_in_tree += in_tree;
      num_held += pool_.num_holders(page) > 0 ? 1 : 0;
    }
    EXPECT_EQ(num_held + pool_.num_free(), pool_.num_pages());
    EXPECT_EQ(num_in_tree, tree_.num_pages());
    check_states();
  }

  /// Every state is free, a snapshot of the tree, or held by one running request.
  void check_states() {
    std::set<StateId> held;
    for (const Request* request : scheduler_.all()) {
      if (request->state < 0) continue;
      EXPECT_TRUE(held.insert(request->state).second) << "two requests share a state";
    }
    EXPECT_EQ(static_cast<int64_t>(held.size()) + tree_.num_states() + states_.num_free(),
              states_.num_states());
  }

  void run_to_end() {
    for (int steps = 0; scheduler_.num_running() + scheduler_.num_waiting() > 0; ++steps) {
      ASSERT_LT(steps, 100000) << "no progress";
      ASSERT_GT(step(), 0) << "an empty step";
    }
  }

  Scheduler& scheduler() { return scheduler_; }
  PagePool& pool() { return pool_; }
  StatePool& states() { return states_; }
  PrefixTree& tree() { return tree_; }
  const std::map<std::string, std::vector<TokenId>>& finished() const { return finished_; }

  /// The continuation is a function of the prompt alone, as with greedy sampling.
  static TokenId next_token(const Request& request) {
    return static_cast<TokenId>(
        std::accumulate(request.tokens.begin(), request.tokens.end(), uint32_t{7},
                        [](uint32_t sum, TokenId id) { return sum * 31 + id; }) %
        5);
  }

 private:
  int64_t slot_of(const Request& request, int64_t position) const {
    return static_cast<int64_t>(request.pages[position / config_.page_tokens]) *
               config_.page_tokens +
           position % config_.page_tokens;
  }
  /// The beginning of the first block in which the request's next token sees something.
  int64_t first_read(const Request& request) const {
    const PageWindow& window = config_.window;
    if (!window) return 0;
    return std::max<int64_t>(0, request.num_computed - window.tokens + 1) / window.block_tokens *
           window.block_tokens;
  }
  /// A state is that of the tokens before the chunk, and then of those up to its end.
  void advance_state(const Chunk& chunk) {
    if (states_.num_states() == 0) return;
    const Request& request = *chunk.request;
    ASSERT_GE(request.state, 0);
    uint64_t& state = state_contents_[request.state];
    if (request.num_computed > 0) {
      EXPECT_EQ(state, fingerprint(request, request.num_computed - 1))
          << "request " << request.client.rid << " goes on from a foreign state at "
          << request.num_computed;
    }
    state = fingerprint(request, request.num_computed + chunk.num_tokens - 1);
  }
  static uint64_t fingerprint(const Request& request, int64_t position) {
    uint64_t hash = 1469598103934665603ULL;
    for (int64_t i = 0; i <= position; ++i)
      hash = (hash ^ static_cast<uint64_t>(request.tokens[i] + 1)) * 1099511628211ULL;
    return hash;
  }

  SchedulerConfig config_;
  SystemClock clock_;
  PagePool pool_;
  StatePool states_;
  PrefixTree tree_;
  std::vector<uint64_t> slots_;
  std::vector<uint64_t> state_contents_;
  Scheduler scheduler_;
  int64_t num_submitted_ = 0;
  std::map<std::string, std::vector<TokenId>> finished_;
};

std::vector<TokenId> numbered_prompt(TokenId first, int64_t length) {
  std::vector<TokenId> prompt(length);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

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

// Events of random schedules; `below` draws a number below its argument.

template <typename Below>
void remove_one(Bench& bench, const Below& below) {
  const auto all = bench.scheduler().all();
  if (!all.empty()) bench.scheduler().remove(*all[below(static_cast<int64_t>(all.size()))]);
}

template <typename Below>
void retract_all(Bench& bench, const Below& below) {
  const bool keeps_prefixes = below(2) == 0;
  bench.scheduler().retract_all(keeps_prefixes);
  if (!keeps_prefixes) bench.tree().clear();
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

constexpr SchedulerConfig kWithWindow{
    .page_tokens = 4, .max_prefill_tokens = 10, .window = {.tokens = 12, .block_tokens = 8}};

int64_t pages_held(const Request& request) {
  return std::ranges::count_if(request.pages, [](PageId page) { return page != kNoPage; });
}

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
  EXPECT_EQ(next.cached_tokens, 69) << "all but the token whose successor was never drawn";
  EXPECT_LE(pages_held(next), 6 + 1);
  bench.run_to_end();
  EXPECT_EQ(bench.tree().match(numbered_prompt(0, 10)).num_tokens, 10);
  EXPECT_EQ(bench.tree().match(std::span(prompt).first(40)).num_tokens, 8)
      << "the middle of the response is gone";
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

TEST(SchedulerWithWindow, RandomSchedulesNeverLeakOrMixPages) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    int64_t draws = 0;
    const auto below = [&](int64_t limit) {
      return static_cast<int64_t>(uniform(seed, 2, draws++) * static_cast<double>(limit));
    };
    const int64_t page = 1 + below(6), chunk = 1 + below(30);
    const PageWindow window{.tokens = 1 + below(40), .block_tokens = page * (1 + below(4))};
    const int64_t num_pages = (window.most_held(1 << 20, chunk) + page - 1) / page + 1 + below(40);
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
  EXPECT_EQ(next.cached_tokens, 14) << "all but the token whose successor was never drawn";
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

}  // namespace
}  // namespace slime::engine
