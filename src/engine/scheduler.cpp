#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "engine/prefix_keys.h"

namespace slime::engine {
namespace {

constexpr double kReserveAfterRetraction = 0.2;  // added to the share
constexpr double kReserveDecay = 0.995;          // per step
constexpr double kLeastReserve = 0.05;
constexpr int64_t kMaxSkipped = 256;  // siblings passed over in a step's search for requests

int64_t num_common(std::span<const TokenKey> a, std::span<const TokenKey> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

/// Of all tables, without what is missing.
std::vector<PageId> held_pages(const std::vector<PageId>& pages,
                               const std::vector<std::vector<PageId>>& window_pages) {
  std::vector<PageId> held = pages;
  for (const std::vector<PageId>& table : window_pages)
    held.insert(held.end(), table.begin(), table.end());
  std::erase(held, kNoPage);
  return held;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, PagePool& pool, PrefixTree& tree,
                     const Clock& clock, CopyPageFn copy_page, StatePool* states,
                     CopyStateFn copy_state)
    : config_(config),
      pool_(pool),
      tree_(tree),
      clock_(clock),
      copy_page_(std::move(copy_page)),
      states_(states),
      copy_state_(std::move(copy_state)) {}

int64_t Scheduler::pages_for(int64_t num_tokens) const {
  return (num_tokens + config_.page_tokens - 1) / config_.page_tokens;
}

int64_t Scheduler::most_pages(int64_t num_tokens, int64_t chunk) const {
  return config_.window.most_pages(num_tokens, chunk, config_.page_tokens);
}

void Scheduler::add(std::unique_ptr<Request> request) {
  check(most_pages(request->max_tokens, config_.max_prefill_tokens) <= pool_.num_pages(),
        "a request fits into the pool on its own");
  const bool is_new = by_rid_.emplace(request->client.rid, request.get()).second;
  check(is_new, "a rid is that of one request");
  switch_rotation(*request);
  waiting_.push_back(std::move(request));
}

int64_t Scheduler::reserved_pages() const {
  double tokens = 0;
  for (const auto& request : running_) {
    const double grows =
        static_cast<double>(request->num_missing()) +
        reserve_share_ *
            static_cast<double>(request->max_tokens - static_cast<int64_t>(request->tokens.size()));
    const PageWindow& window = config_.window;
    // Of a table of layers with a window.
    const int64_t held = static_cast<int64_t>(request->pages.size()) - request->num_given_back;
    const int64_t chunk = request->num_missing() > 1 ? config_.max_prefill_tokens : 1;
    const int64_t more =
        std::max<int64_t>(0, pages_for(window.most_held(request->max_tokens, chunk)) - held);
    const double with_window = std::min(grows, static_cast<double>(more * config_.page_tokens));
    tokens += static_cast<double>(window.num_full_tables()) * grows +
              static_cast<double>(window.num_window_tables()) * with_window;
  }
  return static_cast<int64_t>(std::ceil(tokens / static_cast<double>(config_.page_tokens)));
}

bool Scheduler::ensure_pages(Request& request, int64_t num_tokens) {
  const int64_t more = pages_for(num_tokens) - static_cast<int64_t>(request.pages.size());
  if (more <= 0) return true;
  const int64_t wanted = more * config_.window.num_tables();
  if (pool_.num_available() < wanted) return false;
  if (pool_.num_free() < wanted) tree_.evict_until_free(wanted);
  const auto add_page = [&](std::vector<PageId>& table) {
    const auto page = pool_.allocate();
    check(page.has_value(), "available pages can be allocated");
    table.push_back(*page);
  };
  for (int64_t i = 0; i < more; ++i) {
    add_page(request.pages);
    for (std::vector<PageId>& table : request.window_pages) add_page(table);
  }
  return true;
}

/// At least one token is computed, for its hidden state; with scores of the prompt, all whose
/// successor is scored.
int64_t Scheduler::match_limit(const Request& request) const {
  int64_t limit = static_cast<int64_t>(request.tokens.size()) - 1;
  if (request.wants_input_scores() && request.num_scored < request.prompt_length) {
    limit = std::min(limit, std::max(request.first_scored_position(), request.num_scored) - 1);
  }
  return limit;
}

int64_t Scheduler::worth_waiting_for(const Request& request, int64_t num_matched) const {
  const int64_t to_compute = static_cast<int64_t>(request.tokens.size()) - num_matched;
  return std::max(config_.page_tokens, to_compute / 2);
}

int64_t Scheduler::shared_with(Request& other, Request& request) const {
  const int64_t limit = std::max<int64_t>(match_limit(request), 0);
  return num_common(prefix_keys(other, other.prompt_length), prefix_keys(request, limit));
}

void Scheduler::switch_rotation(Request& request) {
  const RotarySwitch& at = config_.rotary_switch;
  if (at.length == 0 || request.rotary_offset != 0 ||
      static_cast<int64_t>(request.tokens.size()) <= at.length)
    return;
  give_back_pages(request, /*keeps_prefixes=*/true);
  request.rotary_offset = at.offset;
  request.prefix_keys.clear();
}

bool Scheduler::awaits_sibling(Request& request, int64_t num_matched) const {
  const int64_t worth = worth_waiting_for(request, num_matched);
  return std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
    return !other->prompt_is_recorded && shared_with(*other, request) - num_matched >= worth;
  });
}

void Scheduler::halt_for_those_that_wait(std::vector<Chunk>& chunks) {
  if (states_ == nullptr || !config_.shares_prefixes) return;
  const std::size_t count = std::min<std::size_t>(waiting_.size(), kMaxSkipped);
  for (std::size_t i = 0; i < count; ++i) {
    Request& request = *waiting_[i];
    const int64_t worth = worth_waiting_for(request, 0);
    for (const auto& other : running_) {
      if (other->prompt_is_recorded) continue;
      const int64_t common = shared_with(*other, request);
      // Before its last token it halts anyway.
      if (common < worth || common <= other->num_computed || common >= other->prompt_length)
        continue;
      const auto place = std::ranges::lower_bound(other->snapshots_at, common);
      if (place == other->snapshots_at.end() || *place != common)
        other->snapshots_at.insert(place, common);
    }
  }
  for (Chunk& chunk : chunks) {
    const std::vector<int64_t>& halts = chunk.request->snapshots_at;
    if (!halts.empty())
      chunk.num_tokens = std::min(chunk.num_tokens, halts.front() - chunk.request->num_computed);
  }
}

bool Scheduler::admit(Request& request) {
  PrefixTree::Match match{.window_pages = std::vector<std::vector<PageId>>(
                              static_cast<std::size_t>(config_.window.num_groups))};
  if (config_.shares_prefixes) {
    match = tree_.match(prefix_keys(request, std::max<int64_t>(match_limit(request), 0)));
  }
  const std::vector<PageId> held = held_pages(match.pages, match.window_pages);
  const auto num_tokens = static_cast<int64_t>(request.tokens.size());
  const int64_t chunk = std::min(config_.max_prefill_tokens, num_tokens - match.num_tokens);
  const int64_t needed = most_pages(num_tokens, chunk) - static_cast<int64_t>(held.size());
  // Matched pages stop being evictable when this request holds them.
  for (const PageId page : held) pool_.retain(page);
  if (!running_.empty() && pool_.num_available() < needed + reserved_pages()) {
    for (const PageId page : held) pool_.release(page);
    return false;
  }
  if (states_ != nullptr) {
    const auto state = take_state();
    if (!state) {
      for (const PageId page : held) pool_.release(page);
      return false;
    }
    // The last snapshot of all may have been given back for its own sake.
    if (match.state && *match.state != *state) copy_state_(*match.state, *state);
    request.state = *state;
    request.num_in_state = match.num_tokens;
  }
  request.pages = match.pages;
  request.window_pages = match.window_pages;
  request.num_given_back = config_.window.first_needed(match.num_tokens) / config_.page_tokens;
  request.num_computed = static_cast<int64_t>(match.pages.size()) * config_.page_tokens;
  if (match.partial_page.has_value()) {
    std::vector<PageId> partial{*match.partial_page};
    partial.insert(partial.end(), match.partial_window_pages.begin(),
                   match.partial_window_pages.end());
    for (const PageId page : partial) pool_.retain(page);
    if (ensure_pages(request, request.num_computed + match.num_partial)) {
      copy_page_(partial[0], request.pages.back());
      for (std::size_t group = 0; group < request.window_pages.size(); ++group)
        copy_page_(partial[1 + group], request.window_pages[group].back());
      request.num_computed += match.num_partial;
    }
    for (const PageId page : partial) pool_.release(page);
  }
  // Without room for the page in which the match ends, a snapshot's state is ahead of the keys, and a
  // window may begin before the pages that are there.
  const bool is_shorter = request.num_computed != match.num_tokens;
  const bool lacks_window = config_.window.first_needed(request.num_computed) <
                            request.num_given_back * config_.page_tokens;
  if (is_shorter && (states_ != nullptr || lacks_window))
    give_back_pages(request, /*keeps_prefixes=*/false);
  plan_snapshots(request, match.num_known);
  request.prompt_is_recorded =
      !config_.shares_prefixes || (states_ != nullptr && request.snapshots_at.empty());
  if (!request.admitted.has_value()) {
    request.admitted = clock_.now();
    request.cached_tokens = std::min(request.num_computed, request.prompt_length);
  }
  return true;
}

int64_t Scheduler::prefill_budget() const {
  const int64_t alone = config_.max_prefill_tokens;
  if (config_.prefill_beside_decode == 0) return alone;
  const bool decodes = std::ranges::any_of(running_, [](const auto& request) {
    return request->num_missing() == 1 && !request->draws_last && !awaits_token(*request);
  });
  return decodes ? std::min(alone, config_.prefill_beside_decode) : alone;
}

bool Scheduler::schedule_running(const std::function<bool(Request&)>& schedule) {
  reserve_share_ = std::max(kLeastReserve, reserve_share_ * kReserveDecay);
  bool had_to_retract = false;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    while (i < running_.size() && !schedule(*running_[i])) {
      check(running_.size() > 1, "a request fits into the pool on its own");
      retract_newest();
      had_to_retract = true;
    }
  }
  if (had_to_retract) reserve_share_ = std::min(1.0, reserve_share_ + kReserveAfterRetraction);
  return had_to_retract;
}

std::vector<Chunk> Scheduler::plan_step() {
  std::vector<Chunk> chunks;
  if (running_.empty() && waiting_.empty()) return chunks;  // and nothing is learnt from it
  // Of prompts, and of chunks with several tokens together.
  int64_t budget = prefill_budget(), rows = config_.max_prefill_tokens;
  const StepArithmetic arithmetic =
      config_.verify_tokens > 0 ? StepArithmetic::kTraining : StepArithmetic::kFast;
  const auto schedule = [&](Request& request) {
    if (request.draws_last || awaits_token(request)) return true;
    switch_rotation(request);
    const int64_t drafts = request.num_tentative();
    // What fast steps wrote is computed again.
    const int64_t computed =
        request.tentative.is_open() ? request.tentative.begin - 1 : request.num_computed;
    const int64_t missing = static_cast<int64_t>(request.tokens.size()) - computed;
    if (drafts > 0 && missing > rows) return true;  // in a later step
    int64_t num_tokens = missing == 1 || drafts > 0 ? missing : std::min(missing, budget);
    if (!request.snapshots_at.empty())
      num_tokens = std::min(num_tokens, request.snapshots_at.front() - computed);
    if (num_tokens == 0) return true;
    if (!ensure_pages(request, computed + num_tokens)) return false;
    request.num_computed = computed;
    if (missing > 1) rows -= num_tokens;
    if (missing > 1 && drafts == 0) budget -= num_tokens;
    budget = std::min(budget, rows);
    chunks.push_back({.request = &request,
                      .num_tokens = num_tokens,
                      .num_drafts = drafts,
                      .arithmetic = arithmetic});
    return true;
  };
  num_blocked_ = 0;
  if (schedule_running(schedule)) {
    num_blocked_ = num_waiting();
    return chunks;
  }
  int64_t num_skipped = 0;
  for (auto it = waiting_.begin(); it != waiting_.end() && budget > 0 &&
                                   num_skipped < kMaxSkipped &&
                                   num_running() < config_.max_running_requests;) {
    Request& request = **it;
    // The cheap test first: only a request that computes its prompt right now can be worth waiting
    // for.
    if (config_.shares_prefixes && awaits_sibling(request, 0)) {
      const auto matched =
          tree_.match(prefix_keys(request, std::max<int64_t>(match_limit(request), 0)));
      if (awaits_sibling(request, matched.num_tokens)) {
        ++it;
        ++num_skipped;
        continue;
      }
    }
    if (!admit(request)) {
      num_blocked_ = num_waiting();
      break;
    }
    running_.push_back(std::move(*it));
    it = waiting_.erase(it);
    if (schedule(*running_.back())) continue;
    check(running_.size() > 1, "a request fits into the pool on its own");
    retract_newest();  // its own pages did not suffice after all: it waits
    num_blocked_ = num_waiting();
    break;
  }
  halt_for_those_that_wait(chunks);
  return chunks;
}

void Scheduler::advance(const Chunk& chunk) {
  Request& request = *chunk.request;
  request.num_in_state = request.num_computed += chunk.num_tokens;
  if (chunk.is_tentative) return;
  if (states_ != nullptr) return advance_with_state(request);
  const bool is_whole = request.num_computed >= request.prompt_length;
  const bool gives_back = config_.window.first_kept(request.num_computed) >
                          request.num_given_back * config_.page_tokens;
  if (!request.prompt_is_recorded && (is_whole || gives_back)) {
    tree_.insert(prefix_keys(request, request.num_computed), request.pages, {},
                 request.window_pages);
    request.prompt_is_recorded = is_whole;
  }
  if (gives_back) give_back_behind_window(request);
}

void Scheduler::give_back_behind_window(Request& request) {
  const int64_t end = config_.window.first_kept(request.num_computed) / config_.page_tokens;
  const auto give_back = [&](std::vector<PageId>& table) {
    pool_.release(std::exchange(table[request.num_given_back], kNoPage));
  };
  for (; request.num_given_back < end; ++request.num_given_back, ++num_pages_given_back_) {
    if (request.window_pages.empty()) give_back(request.pages);
    for (std::vector<PageId>& table : request.window_pages) give_back(table);
  }
}

bool Scheduler::is_current(const Request& request) const {
  return request.pages.empty() ||
         (!request.outlives_weights && pool_.is_current(request.pages[request.num_given_back]));
}

void Scheduler::keep_running() {
  for (const auto& request : running_) {
    if (request->num_computed < request->prompt_length) {
      give_back_pages(*request, /*keeps_prefixes=*/false);
      plan_snapshots(*request, 0);  // its state begins anew
      request->prompt_is_recorded &= request->snapshots_at.empty();
    } else if (!is_current(*request)) {
      request->outlives_weights = true;
      request->prompt_is_recorded = true;  // nobody waits for a prefix that will not be in the tree
    }
  }
}

void Scheduler::give_back_pages(Request& request, bool keeps_prefixes) {
  drop_tentative(request);
  if (keeps_prefixes && config_.shares_prefixes && request.num_computed > 0 &&
      is_current(request)) {
    std::optional<StateId> state;
    if (request.state >= 0 && request.num_computed == request.num_in_state) state = request.state;
    if (tree_.insert(prefix_keys(request, request.num_computed), request.pages, state,
                     request.window_pages))
      request.state = -1;
  }
  for (const PageId page : held_pages(request.pages, request.window_pages)) pool_.release(page);
  request.pages.clear();
  for (std::vector<PageId>& table : request.window_pages) table.clear();
  request.num_given_back = 0;
  request.outlives_weights = false;
  request.num_computed = 0;
}

void Scheduler::give_back_all(Request& request, bool keeps_prefixes) {
  give_back_pages(request, keeps_prefixes);
  if (request.state >= 0) states_->release(request.state);
  request.state = -1;
  request.snapshots_at.clear();
}

void Scheduler::retract_newest() {
  std::unique_ptr<Request> request = std::move(running_.back());
  running_.pop_back();
  give_back_all(*request, true);
  ++request->num_retractions;
  waiting_.push_front(std::move(request));
}

void Scheduler::retract_all(bool keeps_prefixes) {
  while (!running_.empty()) {
    std::unique_ptr<Request> request = std::move(running_.back());
    running_.pop_back();
    give_back_all(*request, keeps_prefixes);
    ++request->num_retractions;
    waiting_.push_front(std::move(request));
  }
}

void Scheduler::drop_all() {
  const std::size_t num_waiting = waiting_.size();
  retract_all(/*keeps_prefixes=*/false);
  const auto dropped = static_cast<std::ptrdiff_t>(waiting_.size() - num_waiting);
  std::rotate(waiting_.begin(), waiting_.begin() + dropped, waiting_.end());
}

std::unique_ptr<Request> Scheduler::remove(Request& request) {
  by_rid_.erase(request.client.rid);
  num_blocked_ = 0;
  const auto is_it = [&](const auto& entry) { return entry.get() == &request; };
  std::unique_ptr<Request> taken;
  if (const auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    taken = std::move(*it);
    running_.erase(it);
    give_back_all(*taken, true);
  } else {
    const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), is_it);
    check(waiting != waiting_.end(), "a removed request is running or waiting");
    taken = std::move(*waiting);
    waiting_.erase(waiting);
  }
  return taken;
}

Request* Scheduler::find(const std::string& rid) const {
  const auto it = by_rid_.find(rid);
  return it == by_rid_.end() ? nullptr : it->second;
}

std::vector<Request*> Scheduler::all() const {
  std::vector<Request*> requests;
  for (const auto& request : running_) requests.push_back(request.get());
  for (const auto& request : waiting_) requests.push_back(request.get());
  return requests;
}

}  // namespace slime::engine
