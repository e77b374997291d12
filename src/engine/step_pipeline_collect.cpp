// What a step drew, told to its requests.

#include <algorithm>
#include <utility>

#include "engine/prompt_scores.h"
#include "engine/request_updates.h"
#include "engine/step_pipeline.h"
#include "kernels/page.h"
#include "kernels/trace.h"

namespace slime::engine {

/// Between two collections, not on the device: a step that is planned when the one before is collected has the round
/// trip to the host in its time, one that ran ahead has not, and drafts have to pay for that too.
void StepPipeline::note_seconds(const StepInFlight& step) {
  const Clock::TimePoint now = clock_.now();
  const Clock::TimePoint begin = std::max(step.planned, std::exchange(collected_at_, now));
  if (step.decode_rows > 0) drafts_->note_step(step.decode_rows, seconds_between(begin, now));
}

void StepPipeline::collect() {
  const kernels::TraceRange range("engine collect");
  std::vector<std::optional<kernels::SampledToken>> tokens = runner_->collect();
  const StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (drafts_) note_seconds(step);
  int64_t num_sampled = 0;
  for (std::size_t i = 0; i < step.parts.size(); ++i) {
    const StepInFlight::Part& part = step.parts[i];
    if (part.request == nullptr) continue;
    if (part.num_scores > 0) append_scores(*part.request, runner_->take_scores(i));
    if (!part.completes) continue;
    if (part.is_tentative) {
      add_tentative(*part.request, part.position, part.round, *tokens[i]);
      continue;
    }
    std::vector<kernels::SampledToken> behind;
    if (!part.drafts.empty()) behind = runner_->take_behind_drafts(i);
    if (part.is_foretold) drafts_->note_foretold(*part.request, runner_->take_foretold(i));
    num_sampled += publish(part, std::move(tokens[i]), std::move(behind), step.version);
  }
  progress_.step_ended();
  // Who hears that the engine idles has all updates.
  if (scheduler_.num_running() + scheduler_.num_waiting() == 0) tell_held();
  report(num_sampled);
}

void StepPipeline::tell(Request& request) {
  if (!holds_updates_) return deliver(request, clock_.now());
  held_.push_back({.request = &request, .ended = nullptr});
}

void StepPipeline::tell(std::unique_ptr<Request> ended) {
  // One of its updates may be held: this one has its tokens too.
  std::erase_if(held_, [&](const HeldUpdate& held) { return held.request == ended.get(); });
  if (!holds_updates_) return deliver(*ended, clock_.now());
  Request* request = ended.get();
  held_.push_back({.request = request, .ended = std::move(ended)});
}

void StepPipeline::tell_held() {
  holds_updates_ = false;
  // One by one: where a callback throws, fail_all() tells the others.
  while (!held_.empty()) {
    const HeldUpdate held = std::move(held_.front());
    held_.erase(held_.begin());
    deliver(*held.request, clock_.now());
  }
}

int64_t StepPipeline::publish(const StepInFlight::Part& part,
                              std::optional<kernels::SampledToken> sampled,
                              std::vector<kernels::SampledToken> behind, WeightVersion version) {
  Request& request = *part.request;
  request.verifies_drafts = false;
  if (!sampled) tell_experts(part, static_cast<int64_t>(request.tokens.size()) - 1);
  GenerateUpdate& pending = request.pending;
  if (!pending.scored_by && (!sampled || !pending.input_log_probs.empty()))
    pending.scored_by = version;
  const std::size_t num_before = pending.output_ids.size();
  std::optional<FinishReason> ends =
      sampled ? add_tokens(part, std::move(*sampled), std::move(behind), version) : out_of_length();
  const auto num_new = static_cast<int64_t>(pending.output_ids.size() - num_before);
  if (ends) {
    finish(request, std::move(*ends));
    return num_new;
  }
  if (sampled && request.constraint && !request.constraint->is_quick()) begin_mask(request);
  if (is_due(request)) tell(request);
  return num_new;
}

std::optional<FinishReason> StepPipeline::add_tokens(const StepInFlight::Part& part,
                                                     kernels::SampledToken sampled,
                                                     std::vector<kernels::SampledToken> behind,
                                                     WeightVersion version) {
  Request& request = *part.request;
  const auto num_drafts = static_cast<int64_t>(part.drafts.size());
  int64_t num_kept = 0;
  bool is_redrawn = false;
  std::optional<FinishReason> ends;
  for (;;) {
    const int64_t position = part.position + num_kept;
    const TokenId drawn = sampled.id;
    tell_experts(part, position);
    ends = add_token(request, position, std::move(sampled), version);
    if (num_kept == num_drafts) break;
    const TokenId draft = part.drafts[num_kept];
    is_redrawn = drafts_ ? !drafts_->is_right(request, position, draft, drawn) : draft != drawn;
    if (ends || is_redrawn) break;
    // The next row was computed behind the tokens that are there now. A request that was retracted meanwhile has
    // no pages with its keys any more: it keeps the token and computes it again.
    if (!request.pages.empty()) scheduler_.advance({.request = &request, .num_tokens = 1});
    request.tokens.push_back(kPendingToken);
    sampled = std::move(behind[num_kept++]);
  }
  if (drafts_ || rounds_) count_drafts(request, num_drafts, num_kept, is_redrawn);
  return ends;
}

void StepPipeline::count_drafts(Request& request, int64_t num_drafts, int64_t num_kept,
                                bool is_redrawn) {
  DraftCounts counts{.num_drafted = num_drafts, .num_kept = num_kept, .num_steps = 1};
  if (rounds_) {
    counts.num_compared = num_kept + (is_redrawn ? 1 : 0);
    counts.num_redrawn = is_redrawn ? 1 : 0;
  }
  request.pending.drafts += counts;
  draft_counts_ += counts;
  if (drafts_) drafts_->note_kept(request, num_drafts, num_kept);
}

void StepPipeline::tell_experts(const StepInFlight::Part& part, int64_t end) {
  Request& request = *part.request;
  if (!request.client.return_routed_experts || end <= request.num_routed) return;
  const int64_t page = request.num_routed / kernels::kPageTokens - part.first_page;
  runner_->append_experts({.begin = request.num_routed,
                           .end = end,
                           .pages = std::span(part.pages).subspan(static_cast<std::size_t>(page))},
                          request.pending.routed_experts);
  request.num_routed = end;
}

}  // namespace slime::engine
