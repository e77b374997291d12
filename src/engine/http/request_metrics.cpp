#include "engine/http/request_metrics.h"

#include <array>

#include "engine/http/abort_status.h"

namespace slime::engine {
namespace {

constexpr auto kFirstTokenBounds =
    std::to_array<double>({0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1,
                           2,     4,     6,     8,    10,   20,   40,  60,  80,  100, 200, 400});
constexpr auto kBetweenTokensBounds = std::to_array<double>(
    {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03,
     0.035,  0.04,   0.06,   0.08,  0.1,   0.2,   0.4,   0.6,   0.8,  1,     2,    4,     8});
constexpr auto kRequestBounds =
    std::to_array<double>({0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1,   2,   4,    6,
                           8,    10,   20,   40,  60,  80,  100, 200, 400, 600, 1200, 2400});
constexpr auto kQueueBounds =
    std::to_array<double>({0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1,   2,
                           3,      4,     5,     10,   20,   50,   100, 200, 500, 1000});

}  // namespace

RequestMetrics::RequestMetrics()
    : first_token(kFirstTokenBounds),
      between_tokens(kBetweenTokensBounds),
      whole_request(kRequestBounds),
      in_queue(kQueueBounds) {}

double RequestMetrics::cache_hit_rate() const {
  const std::int64_t prompt = num_prompt_tokens.load();
  return prompt == 0 ? 0
                     : static_cast<double>(num_cached_tokens.load()) / static_cast<double>(prompt);
}

void MeasuredRequest::add(const GenerateUpdate& update, RequestMetrics& metrics) {
  const auto count = static_cast<std::int64_t>(update.output_ids.size());
  if (count > 0) {
    if (num_tokens_ == 0) {
      metrics.first_token.observe(update.total_seconds);
    } else {
      metrics.between_tokens.observe((update.total_seconds - told_at_) / static_cast<double>(count),
                                     count);
    }
    told_at_ = update.total_seconds;
    num_tokens_ += count;
    metrics.num_generated_tokens += count;
  }
  if (!update.finish) return;
  ++metrics.num_requests;
  if (update.finish->kind == FinishReason::Kind::kAbort) ++metrics.num_aborted;
  metrics.num_prompt_tokens += update.prompt_tokens;
  metrics.num_cached_tokens += update.cached_tokens;
  if (is_http_error(update.finish)) return;  // it has not been served
  metrics.in_queue.observe(update.queue_seconds);
  metrics.whole_request.observe(update.total_seconds);
}

}  // namespace slime::engine
