#pragma once

/// Helpers for scheduler tests: a pretend device, prompts, events of random schedules.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.h"

namespace slime::engine::testing {

/// A scheduler with a pretend device: every cache slot remembers which prefix it was computed for,
/// so a wrong page, a stale copy or a lost token shows. Groups of layers with a window have other keys
/// than those that see all tokens, and than one another.
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

  Request& submit(std::vector<TokenId> prompt, int64_t max_new_tokens,
                  const std::string& cache_salt = "") {
    auto request = std::make_unique<Request>();
    request->client.cache_salt = cache_salt;
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
        for (int64_t table = 0; table < config_.window.num_tables(); ++table)
          slots_[slot_of(request, table, position)] = key_of(request, table, position);
      }
    }
    for (const Chunk& chunk : chunks) {
      for (int64_t table = 0; table < config_.window.num_tables(); ++table)
        check_reads(chunk, table);
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
      ASSERT_EQ(static_cast<int64_t>(request->window_pages.size()),
                request->pages.empty() ? request->window_pages.size() : config_.window.num_groups);
      for (int64_t table = 0; table < tables_of(*request); ++table) {
        ASSERT_EQ(table_of(*request, table).size(), request->pages.size());
        for (const PageId page : table_of(*request, table))
          if (page != kNoPage) ++holders[page];
      }
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
  static int64_t tables_of(const Request& request) {
    return 1 + static_cast<int64_t>(request.window_pages.size());
  }
  static const std::vector<PageId>& table_of(const Request& request, int64_t table) {
    return table == 0 ? request.pages : request.window_pages[table - 1];
  }
  int64_t slot_of(const Request& request, int64_t table, int64_t position) const {
    return static_cast<int64_t>(table_of(request, table)[position / config_.page_tokens]) *
               config_.page_tokens +
           position % config_.page_tokens;
  }
  static uint64_t key_of(const Request& request, int64_t table, int64_t position) {
    return fingerprint(request, position) + static_cast<uint64_t>(table);
  }
  void check_reads(const Chunk& chunk, int64_t table) const {
    const Request& request = *chunk.request;
    for (int64_t position = first_read(request, table);
         position < request.num_computed + chunk.num_tokens; ++position) {
      ASSERT_NE(table_of(request, table)[position / config_.page_tokens], kNoPage) << position;
      EXPECT_EQ(slots_[slot_of(request, table, position)], key_of(request, table, position))
          << "request " << request.client.rid << " reads a foreign key at position " << position
          << " of table " << table;
    }
  }
  /// The beginning of the first block in which the request's next token sees something.
  int64_t first_read(const Request& request, int64_t table) const {
    const PageWindow& window = config_.window;
    if (!window || table < window.num_full_tables()) return 0;
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
    // Keys of both sides of a rotary switch differ, and nobody reads those of another salt.
    uint64_t hash = 1469598103934665603ULL + static_cast<uint64_t>(request.rotary_offset);
    for (const char c : request.client.cache_salt)
      hash = (hash ^ static_cast<uint64_t>(c)) * 1099511628211ULL;
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

inline std::vector<TokenId> numbered_prompt(TokenId first, int64_t length) {
  std::vector<TokenId> prompt(length);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

/// Of text.
inline std::vector<TokenKey> keys_of(std::span<const TokenId> tokens) {
  std::vector<TokenKey> keys;
  extend_keys(keys, tokens, {}, 0);
  return keys;
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

}  // namespace slime::engine::testing
