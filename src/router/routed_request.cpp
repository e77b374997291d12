#include "router/routed_request.h"

#include <algorithm>
#include <utility>

#include "engine/request_parts.h"

namespace slime::router {
namespace {

/// Of a caller that waits for the end: so many tokens are lost with an engine, at most.
constexpr int64_t kGatheredTokens = 16;

}  // namespace

RoutedRequest::RoutedRequest(engine::GenerateRequest request,
                             engine::EngineClient::OnUpdate on_update_in,
                             Clock::TimePoint submitted)
    : on_update(std::move(on_update_in)),
      rest_(std::move(request)),
      prompt_tokens_(num_tokens()),
      gathers_(rest_.stream_interval <= 0),
      submitted_(submitted) {}

const std::vector<TokenKey>& RoutedRequest::keys() {
  extend_keys(keys_, rest_.input_ids, rest_.media, key_salt(rest_.cache_salt));
  return keys_;
}

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
      update.input_asked.clear();
      update.scored_by.reset();
    }
  }
  engine::advance(rest_, update.output_ids);
  if (count > 0) troubles = {};
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
  merge(held_, std::move(update));
  if (!held_.finish) return std::nullopt;
  return std::move(held_);
}

engine::GenerateUpdate RoutedRequest::last_update(engine::FinishReason finish,
                                                  Clock::TimePoint now) {
  engine::GenerateUpdate update;
  update.finish = std::move(finish);
  return *take(std::move(update), /*ends=*/true, now);
}

}  // namespace slime::router
