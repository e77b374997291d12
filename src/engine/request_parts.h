#pragma once

/// A request that is sampled in several parts, by one engine or by several: what is left of it, and
/// its updates as one.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "core/version_runs.h"
#include "engine/client.h"

namespace slime::engine {

/// Makes `rest` what is left of it when `sampled` has come: those tokens are of its input, and a
/// later part draws behind them. Scores of the prompt came with the first token.
inline void advance(GenerateRequest& rest, std::span<const TokenId> sampled) {
  if (sampled.empty()) return;
  const auto count = static_cast<int64_t>(sampled.size());
  rest.input_ids.insert(rest.input_ids.end(), sampled.begin(), sampled.end());
  rest.num_sampled += count;
  rest.logprob_start_len = -1;
  if (rest.return_routed_experts)
    rest.routed_experts_start_len = static_cast<int64_t>(rest.input_ids.size()) - 1;
  rest.sampling.max_new_tokens -= count;
  rest.sampling.min_new_tokens = std::max<int64_t>(0, rest.sampling.min_new_tokens - count);
}

/// Finish, counters and times of a request's newest update, into any record that has them.
template <typename Totals>
void take_totals(Totals& to, const GenerateUpdate& update) {
  to.finish = update.finish;
  if (update.scored_by) to.scored_by = update.scored_by;
  to.prompt_tokens = update.prompt_tokens;
  to.cached_tokens = update.cached_tokens;
  to.num_retractions = update.num_retractions;
  to.queue_seconds = update.queue_seconds;
  to.total_seconds = update.total_seconds;
}

/// Adds a later update of the same request to `all`: its tokens behind those of `all`; counters,
/// times and the finish are the later ones.
inline void merge(GenerateUpdate& all, GenerateUpdate update) {
  const auto append = [](auto& to, auto&& from) {
    if (to.empty()) {
      to = std::move(from);
    } else {
      to.insert(to.end(), std::make_move_iterator(from.begin()),
                std::make_move_iterator(from.end()));
    }
  };
  append(all.output_ids, std::move(update.output_ids));
  append(all.output_log_probs, std::move(update.output_log_probs));
  append(all.output_free_log_probs, std::move(update.output_free_log_probs));
  all.num_constrained += update.num_constrained;
  all.drafts += update.drafts;
  append(all.output_top, std::move(update.output_top));
  append(all.output_asked, std::move(update.output_asked));
  append(all.top_p_ids, std::move(update.top_p_ids));
  append(all.top_p_counts, std::move(update.top_p_counts));
  append(all.top_p_log_probs, std::move(update.top_p_log_probs));
  append(all.routed_experts, std::move(update.routed_experts));
  append(all.input_log_probs, std::move(update.input_log_probs));
  append(all.input_top, std::move(update.input_top));
  append(all.input_asked, std::move(update.input_asked));
  for (const VersionRun& run : update.versions) append_run(all.versions, run);
  all.rid = std::move(update.rid);
  take_totals(all, update);
}

}  // namespace slime::engine
