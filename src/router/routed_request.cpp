#include "router/routed_request.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/version_runs.h"

namespace slime::router {
namespace {

/// Of a caller that waits for the end: so many tokens are lost with an engine, at most.
constexpr int64_t kGatheredTokens = 16;

template <typename T>
void append(std::vector<T>& all, std::vector<T> more) {
  if (all.empty()) {
    all = std::move(more);
  } else {
    all.insert(all.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  }
}

}  // namespace

RoutedRequest::RoutedRequest(engine::GenerateRequest request,
                             engine::EngineClient::OnUpdate on_update_in,
                             Clock::TimePoint submitted)
    : on_update(std::move(on_update_in)),
      rest_(std::move(request)),
      prompt_tokens_(num_tokens()),
      gathers_(rest_.stream_interval <= 0),
      submitted_(submitted) {}

engine::GenerateRequest RoutedRequest::next_part() const {
  engine::GenerateRequest part = rest_;
  if (gathers_) part.stream_interval = kGatheredTokens;
  return part;
}

std::optional<engine::GenerateUpdate> RoutedRequest::take(engine::GenerateUpdate update, bool ends,
                                                          Clock::TimePoint now) {
  const auto count = static_cast<int64_t>(update.output_ids.size());
  const bool is_last_of_part = update.finish.has_value();
  if (!ends) {
    update.finish.reset();
    // Scores of half a prompt are made again with the whole of it.
    if (is_last_of_part && count == 0) {
      update.input_log_probs.clear();
      update.input_top.clear();
    }
  }
  rest_.input_ids.insert(rest_.input_ids.end(), update.output_ids.begin(), update.output_ids.end());
  rest_.num_drawn += count;
  rest_.sampling.max_new_tokens -= count;
  rest_.sampling.min_new_tokens = std::max<int64_t>(0, rest_.sampling.min_new_tokens - count);
  if (count > 0) {
    rest_.logprob_start_len = -1;  // those of the prompt came with the first token
    troubles = {};
  }
  // Of the prompt, where that came first: later engines compute it again.
  if (stay.number == 1) cached_tokens_ = std::max(cached_tokens_, update.cached_tokens);
  update.rid = rest_.rid;
  update.prompt_tokens = prompt_tokens_;
  update.cached_tokens = cached_tokens_;
  update.num_retractions += before_.num_retractions;
  update.queue_seconds += before_.queue_seconds;
  update.total_seconds = seconds_between(submitted_, now);
  if (is_last_of_part) before_ = {update.num_retractions, update.queue_seconds};
  if (!gathers_) {
    const bool says_something = count > 0 || !update.input_log_probs.empty();
    if (!update.finish && !says_something) return std::nullopt;
    return update;
  }
  append(held_.output_ids, std::move(update.output_ids));
  append(held_.output_log_probs, std::move(update.output_log_probs));
  append(held_.output_top, std::move(update.output_top));
  append(held_.top_p_ids, std::move(update.top_p_ids));
  append(held_.top_p_counts, std::move(update.top_p_counts));
  append(held_.input_log_probs, std::move(update.input_log_probs));
  append(held_.input_top, std::move(update.input_top));
  for (const VersionRun& run : update.versions) append_run(held_.versions, run);
  if (!update.finish) return std::nullopt;
  update.output_ids = std::move(held_.output_ids);
  update.output_log_probs = std::move(held_.output_log_probs);
  update.output_top = std::move(held_.output_top);
  update.top_p_ids = std::move(held_.top_p_ids);
  update.top_p_counts = std::move(held_.top_p_counts);
  update.input_log_probs = std::move(held_.input_log_probs);
  update.input_top = std::move(held_.input_top);
  update.versions = std::move(held_.versions);
  return update;
}

engine::GenerateUpdate RoutedRequest::last_update(engine::FinishReason finish,
                                                  Clock::TimePoint now) {
  engine::GenerateUpdate update;
  update.finish = std::move(finish);
  return *take(std::move(update), /*ends=*/true, now);
}

}  // namespace slime::router
