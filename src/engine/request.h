#pragma once

/// One request inside the engine, from admission to its last update. Owned by the engine's thread.
///
/// `tokens` is prompt and response. The first `num_computed` of them have keys and values in
/// `pages`; what is left has to be computed: a whole prompt, the rest of one, or one new token. A
/// retracted request drops its pages, keeps its tokens and is like a new one with a longer prompt.

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "core/clock.h"
#include "core/tensor.h"
#include "engine/client.h"
#include "engine/mask_threads.h"
#include "engine/page_pool.h"
#include "engine/state_pool.h"
#include "engine/stop_checker.h"
#include "engine/tentative.h"
#include "engine/token_constraint.h"

namespace slime::engine {

/// Stands at the end of Request::tokens for the token of a step in flight.
inline constexpr TokenId kPendingToken = -1;

struct LoadedAdapter;
struct Drafting;

struct Request {
  RequestHandle handle{};
  GenerateRequest client;
  EngineClient::OnUpdate on_update;
  std::shared_ptr<const LoadedAdapter> adapter;  // of client.adapter; null: the model as it is
  uint64_t seed = 0;                             // with `stream`, the key of its random numbers
  uint64_t stream = 0;
  int64_t max_tokens = 0;  // prompt and response end here at the latest
  Clock::TimePoint submitted;

  std::vector<TokenId> tokens;
  int64_t prompt_length = 0;
  /// What is added to a token's index to have its row of the rotary tables: not 0 in a sequence beyond the
  /// model's rotary switch (model/layers/rotary_table.h).
  int64_t rotary_offset = 0;
  std::vector<TokenKey> prefix_keys;  // of the first tokens (engine/prefix_keys.h)
  int64_t num_computed = 0;
  std::vector<PageId> pages;  // page i holds tokens [16 i, 16 i + 16)
  /// Where some layers have a window and others see all tokens, `pages` are those of the latter, and here
  /// are tables of the same length for the groups of the former (engine/cache_groups.h).
  std::vector<std::vector<PageId>> window_pages;
  /// The first ones of layers with a window are kNoPage, behind it: in window_pages, or in pages where
  /// every layer has one.
  int64_t num_given_back = 0;
  bool outlives_weights = false;  // keys and values of older weights are among its own
  /// In networks whose layers keep a state: where it is, -1 while the request waits, and where the
  /// computation of its tokens halts for a snapshot of it, in ascending order.
  StateId state = -1;
  int64_t num_in_state = 0;  // tokens that it has taken in
  std::vector<int64_t> snapshots_at;
  bool draws_last = false;  // the step in flight draws its last token: nothing is left to compute
  /// Where the step in flight puts its token, counted over the tokens it draws.
  int64_t sampled_row = -1;
  bool prompt_is_recorded = false;  // in the prefix tree, since the pages were allocated
  /// Prompt positions whose log-prob is known or comes with a step in flight, counted from position 0.
  int64_t num_scored = 0;
  /// Rows whose choices of experts need not be told any more; what is computed again does not change
  /// them.
  int64_t num_routed = 0;
  std::unordered_map<TokenId, int64_t> output_counts;  // only with penalties
  /// On a GPU: what changes its logits, kernels::LogitChanges (engine/gpu_row_extras.h); undefined
  /// until it is needed.
  Tensor logit_changes;
  std::unique_ptr<StopChecker> stop;
  std::shared_ptr<TokenConstraint> constraint;  // null: any token may come next
  std::shared_ptr<NextMask> next_mask;          // that is being found out; null: none is
  /// What it allows for the token that the step in flight draws (mask_words); empty: any.
  std::vector<uint32_t> allowed_W;
  std::shared_ptr<Drafting> drafting;  // engine/drafts/draft_planner.h; null: no drafts so far
  bool verifies_drafts = false;        // the step in flight does: it may draw more than one token
  Tentative tentative;                 // with EngineConfig::verify_tokens
  GenerateUpdate pending;              // what the caller has not been told yet
  std::optional<Clock::TimePoint> admitted;
  int64_t cached_tokens = 0;  // of the prompt, at the first admission
  int64_t num_retractions = 0;

  int64_t num_missing() const { return static_cast<int64_t>(tokens.size()) - num_computed; }
  int64_t num_new_tokens() const { return static_cast<int64_t>(tokens.size()) - prompt_length; }
  int64_t num_tentative() const {
    return tentative.is_open() ? static_cast<int64_t>(tokens.size()) - tentative.begin : 0;
  }
  bool wants_input_scores() const { return client.return_logprob && client.logprob_start_len >= 0; }
  /// Log-probs of the prompt are wanted from here on; position 0 has none.
  int64_t first_scored_position() const { return std::max<int64_t>(client.logprob_start_len, 1); }
};

/// The next step needs the token of the one in flight.
inline bool awaits_token(const Request& request) {
  return (request.constraint != nullptr || request.verifies_drafts) &&
         request.tokens.back() == kPendingToken;
}

/// Back to what is verified; keys and values that fast steps wrote do not count any more.
inline void drop_tentative(Request& request) {
  Tentative& tentative = request.tentative;
  if (!tentative.is_open()) return;
  const auto size = static_cast<int64_t>(request.tokens.size());
  const int64_t num_verified = std::min(size, tentative.begin);
  request.tokens.resize(static_cast<std::size_t>(num_verified));
  request.num_computed = std::min(request.num_computed, num_verified - 1);
  tentative.close();
}

/// Of the rotary tables, for the token at `index`.
inline int64_t rotary_row(const Request& request, int64_t index) {
  return index + request.rotary_offset;
}

}  // namespace slime::engine
