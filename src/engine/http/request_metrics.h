#pragma once

/// Metrics of requests since the server's start: counts, and how long they took. Any thread.

#include <atomic>
#include <cstdint>

#include "engine/client.h"
#include "engine/http/latency_histogram.h"

namespace slime::engine {

struct RequestMetrics {
  RequestMetrics();

  std::atomic<std::int64_t> num_requests{0};  // that ended
  std::atomic<std::int64_t> num_aborted{0};
  std::atomic<std::int64_t> num_prompt_tokens{0};
  std::atomic<std::int64_t> num_cached_tokens{0};
  std::atomic<std::int64_t> num_generated_tokens{0};
  LatencyHistogram first_token;     // from submission
  LatencyHistogram between_tokens;  // of those that came together each an equal share
  LatencyHistogram whole_request;
  LatencyHistogram in_queue;

  double cache_hit_rate() const;
};

/// Latencies and tokens of one request, added to the metrics from its updates.
class MeasuredRequest {
 public:
  void add(const GenerateUpdate& update, RequestMetrics& metrics);

 private:
  std::int64_t num_tokens_ = 0;
  double told_at_ = 0;  // seconds after submission
};

}  // namespace slime::engine
