// Fast steps, whose tokens later steps verify (docs/decisions/0167-verification.md).

#include <algorithm>

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/step_runner.h"

namespace slime::engine {

/// The first token behind the prompt is of a step in training arithmetic, as the prompt's keys are.
bool Scheduler::may_decode_ahead(const Request& request) const {
  return request.num_computed >= request.prompt_length && request.num_missing() == 1 &&
         !request.draws_last && !awaits_token(request) && !request.tentative.ends &&
         request.num_tentative() < config_.verify_tokens && request.constraint == nullptr &&
         !has_penalties(request.client.sampling) && most_drafts(request, /*wanted=*/1) > 0;
}

std::vector<Chunk> Scheduler::plan_ahead() {
  std::vector<Chunk> chunks;
  schedule_running([&](Request& request) {
    if (!may_decode_ahead(request)) return true;
    if (!ensure_pages(request, request.num_computed + 1)) return false;
    chunks.push_back({.request = &request, .num_tokens = 1, .is_tentative = true});
    return true;
  });
  return chunks;
}

AheadCounts Scheduler::ahead_counts(int64_t enough_rows) const {
  AheadCounts counts;
  for (const auto& request : running_) {
    // A prompt that is scored alone has nothing left to compute while its last step is in flight.
    if (request->draws_last || awaits_token(*request) || request->num_missing() == 0) continue;
    const int64_t num_tentative = request->num_tentative();
    if (num_tentative > 0) counts.rows_to_verify += 1 + num_tentative;
    if (may_decode_ahead(*request)) {
      ++counts.num_able;
    } else if (num_tentative >= config_.verify_tokens) {
      ++counts.num_full;
    } else {
      ++counts.num_stalled;
      counts.rows_stalled += std::max(request->num_missing(), 1 + num_tentative);
    }
  }
  const int64_t places =
      std::min(num_waiting() - num_blocked_, config_.max_running_requests - num_running());
  for (int64_t i = 0; i < places; ++i) {
    ++counts.num_stalled;
    if (counts.rows_stalled < enough_rows)
      counts.rows_stalled += static_cast<int64_t>(waiting_[i]->tokens.size());
  }
  return counts;
}

}  // namespace slime::engine
