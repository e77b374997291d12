#pragma once

/// Scheduler of engine steps: admits requests, cuts prompts into chunks, preempts.
///
/// Every step advances all running requests: those with one missing token by that token (decode),
/// the others by a chunk of their prompt, within `max_prefill_tokens` per step, or fewer in a step that
/// decodes, whose requests wait for them. Requests are admitted in the order of arrival while pages last.
/// Three rules around that order:
///   - siblings: a request whose prompt another one is computing right now waits until that prefix
///     is cached, so the n samples of a group compute their prompt once;
///   - pressure: without a free page, unused prefixes are evicted (oldest use first), then the
///     newest request is retracted: it keeps its tokens, gives up its pages and is first in line
///     again;
///   - reserve: a share of what running requests may still write is kept free at admission. The
///     share grows after a retraction and decays slowly, so that requests rarely start only to be
///     retracted.
/// Where layers keep a state of each request, a request also holds one of a StatePool while it runs, and
/// the prefix tree keeps snapshots: before the last token of a prompt, from where the other samples of
/// its group go on; where a prompt left what the tree knew, and where one that waits will leave it; and at
/// the end of a request. A snapshot needs a place that no running request wants.
/// Where every layer has a window (engine/page_window.h), a request gives back the pages behind it as it
/// goes on, those of a prompt to the prefix tree, and admission counts what a request holds at most. Where
/// some layers have one, so it does with the pages of those, which are in page tables of their own; all
/// tables have an entry for the same tokens.
/// A request with a TokenConstraint is left out of a step while its last token is not known.
/// No tensors here: pages are numbers, and copying one is the caller's function. Owned by the
/// engine's thread.

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/chunk.h"
#include "engine/page_pool.h"
#include "engine/prefix_tree.h"
#include "engine/request.h"

namespace slime::engine {

/// Sequences of more than `length` tokens rotate by the rows of the tables from `offset` on. A request
/// that grows beyond it is computed anew, as transformers does it.
struct RotarySwitch {
  int64_t length = 0;  // 0: there is none
  int64_t offset = 0;
};

struct SchedulerConfig {
  int64_t page_tokens = 16;
  int64_t max_running_requests = 128;
  int64_t max_prefill_tokens = 512;   // per step, over all requests
  int64_t prefill_beside_decode = 0;  // the same in steps in which a request decodes; 0: no other
  bool shares_prefixes = true;        // false: no prefix tree
  PageWindow window;                  // that of the prefix tree
  RotarySwitch rotary_switch;
  int64_t verify_tokens = 0;  // EngineConfig::verify_tokens
};

/// Requests of a moment, as to what they can do in a fast step.
struct AheadCounts {
  int64_t num_able = 0;  // decode ahead
  int64_t num_full = 0;  // have as many tentative tokens as may be
  int64_t num_stalled =
      0;  // need a step in training arithmetic for another reason, or to be admitted
  int64_t rows_to_verify = 0;
  int64_t rows_stalled = 0;  // of stalled requests; no more are counted when there are enough
};

/// One class because who runs, who waits and which pages they hold decide one another.
class Scheduler {
 public:
  using CopyPageFn = std::function<void(PageId from, PageId to)>;

  /// `states`: null where layers keep none.
  Scheduler(const SchedulerConfig& config, PagePool& pool, PrefixTree& tree, const Clock& clock,
            CopyPageFn copy_page, StatePool* states = nullptr, CopyStateFn copy_state = {});
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The request must fit into the pool on its own, and its rid is nobody else's here.
  void add(std::unique_ptr<Request> request);

  /// Admits, retracts, and returns the next step; every chunk has its pages. Empty only when
  /// nothing is left to do.
  std::vector<Chunk> plan_step();

  /// With verify_tokens: the next fast step, a tentative token of each request that may decode ahead
  /// (may_decode_ahead); retracts, and admits none. plan_step() is then the next step in training
  /// arithmetic, and verifies what has been collected.
  std::vector<Chunk> plan_ahead();
  AheadCounts ahead_counts(int64_t enough_rows) const;

  /// At most so many of `wanted` tokens more than those of `chunk` may the request be given drafts for: the
  /// response may become longer still, and the rotation stays.
  int64_t most_drafts(const Chunk& chunk, int64_t wanted) const;
  /// The same where there are pages, which the request gets.
  int64_t room_for_drafts(const Chunk& chunk, int64_t wanted);

  /// The chunk was computed: its keys and values are in the pages.
  void advance(const Chunk& chunk);

  /// Takes a request out, wherever it is; its pages go back, what they hold stays in the prefix
  /// tree.
  std::unique_ptr<Request> remove(Request& request);
  Request* find(const std::string& rid) const;

  /// The weights have changed, and requests keep the keys and values that they have. What those
  /// write from now on stays theirs: the prefix tree, which the caller has cleared, gets pages of
  /// the present version only. Prompts that are not whole are computed anew.
  void keep_running();

  /// All running requests go back in line in their order. Without `keeps_prefixes` their keys and
  /// values are forgotten.
  void retract_all(bool keeps_prefixes);
  /// The same, without prefixes, behind all that wait.
  void drop_all();

  std::vector<Request*> all() const;  // running ones first, in order of admission
  const PageWindow& window() const { return config_.window; }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  /// Tokens behind windows whose pages, of all layers or of those with a window, running requests gave
  /// back, so far.
  int64_t num_tokens_given_back() const { return num_pages_given_back_ * config_.page_tokens; }

 private:
  int64_t pages_for(int64_t num_tokens) const;  // of one table
  /// Pages that a request of so many tokens holds at most, prompts in chunks or tokens one by one.
  int64_t most_pages(int64_t num_tokens, int64_t chunk) const;
  int64_t reserved_pages() const;
  /// Prompt tokens of the next step.
  int64_t prefill_budget() const;
  /// Whether its keys and values are of the present weights alone.
  bool is_current(const Request& request) const;
  bool ensure_pages(Request& request, int64_t num_tokens);
  bool admit(Request& request);
  /// A sequence that has become longer than the switch gives back its keys, which have the other
  /// rotation.
  void switch_rotation(Request& request);
  bool awaits_sibling(Request& request, int64_t num_matched) const;
  /// So many tokens more than the matched ones have to be somebody's for a request to wait.
  int64_t worth_waiting_for(const Request& request, int64_t num_matched) const;
  /// Tokens of other's prompt with which `request` begins, as far as it can use them.
  int64_t shared_with(Request& other, Request& request) const;
  int64_t match_limit(const Request& request) const;
  /// A free state, or that of the snapshot used longest ago; nothing where running requests hold all.
  std::optional<StateId> take_state();
  /// Where the prompt halts for snapshots, of whose tokens the tree knew `num_known`.
  void plan_snapshots(Request& request, int64_t num_known) const;
  /// Running requests halt where a prefix ends that one in line waits for: `chunks` with them.
  void halt_for_those_that_wait(std::vector<Chunk>& chunks);
  void advance_with_state(Request& request);
  void give_back_behind_window(Request& request);
  void give_back_pages(Request& request, bool keeps_prefixes);
  void give_back_all(Request& request, bool keeps_prefixes);
  void retract_newest();
  /// Calls `schedule` for each running request; where it has no page, the newest is retracted, until it has.
  /// Whether one was.
  bool schedule_running(const std::function<bool(Request&)>& schedule);
  bool may_decode_ahead(const Request& request) const;
  int64_t most_drafts(const Request& request, int64_t wanted) const;

  const SchedulerConfig config_;
  PagePool& pool_;
  PrefixTree& tree_;
  const Clock& clock_;
  const CopyPageFn copy_page_;
  StatePool* states_;
  const CopyStateFn copy_state_;
  std::vector<std::unique_ptr<Request>> running_;  // in order of admission
  std::deque<std::unique_ptr<Request>> waiting_;
  std::unordered_map<std::string_view, Request*> by_rid_;  // all of both
  int64_t num_pages_given_back_ = 0;
  int64_t num_blocked_ =
      0;  // of those that wait, when the last step was planned for which pages did not suffice
  double reserve_share_ = 0.3;  // of the tokens that running requests may still write
};

}  // namespace slime::engine
