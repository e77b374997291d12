#include "engine/http/request_metrics.h"

#include <gtest/gtest.h>

#include <array>

#include "engine/http/metrics_text.h"

namespace slime::engine {
namespace {

using Counts = std::vector<std::int64_t>;

TEST(LatencyHistogram, CountsWhatIsAtMostABound) {
  constexpr auto kBounds = std::to_array<double>({0.1, 1});
  LatencyHistogram histogram(kBounds);
  for (const double seconds : {0.05, 0.1, 0.2}) histogram.observe(seconds);
  histogram.observe(3, 2);
  const LatencyHistogram::Counts counts = histogram.counts();
  EXPECT_EQ(counts.at_most, (Counts{2, 3}));
  EXPECT_EQ(counts.all, 5);
  EXPECT_DOUBLE_EQ(counts.sum_seconds, 6.35);
}

TEST(MetricsText, IsPrometheusForm) {
  constexpr auto kBounds = std::to_array<double>({0.1});
  LatencyHistogram histogram(kBounds);
  histogram.observe(0.05);
  histogram.observe(0.5);
  MetricsText text("model_name", "a\"b\\c\nd");
  text.gauge("g", "What.", 3);
  text.histogram("h", "How long.", histogram);
  EXPECT_EQ(text.take(), R"(# HELP sglang:g What.
# TYPE sglang:g gauge
sglang:g{model_name="a\"b\\c\nd"} 3
# HELP sglang:h How long.
# TYPE sglang:h histogram
sglang:h_bucket{model_name="a\"b\\c\nd",le="0.1"} 1
sglang:h_bucket{model_name="a\"b\\c\nd",le="+Inf"} 2
sglang:h_sum{model_name="a\"b\\c\nd"} 0.55
sglang:h_count{model_name="a\"b\\c\nd"} 2
)");
}

TEST(RequestMetrics, TokensThatComeTogetherShareTheirTime) {
  RequestMetrics metrics;
  MeasuredRequest request;
  GenerateUpdate update;
  update.output_ids = {1};
  update.total_seconds = 2;
  request.add(update, metrics);
  update.output_ids = {2, 3, 4};
  update.total_seconds = 5;
  update.queue_seconds = 1;
  update.prompt_tokens = 7;
  update.finish = FinishReason{};
  request.add(update, metrics);
  EXPECT_EQ(metrics.first_token.counts().sum_seconds, 2);
  EXPECT_EQ(metrics.between_tokens.counts().all, 3);
  EXPECT_EQ(metrics.between_tokens.counts().sum_seconds, 3);
  EXPECT_EQ(metrics.whole_request.counts().sum_seconds, 5);
  EXPECT_EQ(metrics.in_queue.counts().sum_seconds, 1);
  EXPECT_EQ(metrics.num_generated_tokens.load(), 4);
  EXPECT_EQ(metrics.num_prompt_tokens.load(), 7);
}

TEST(RequestMetrics, WhatWasRefusedTookNoTime) {
  RequestMetrics metrics;
  MeasuredRequest request;
  GenerateUpdate update;
  update.finish = aborted(FinishReason::Cause::kQueueFull, "full");
  request.add(update, metrics);
  EXPECT_EQ(metrics.num_requests.load(), 1);
  EXPECT_EQ(metrics.num_aborted.load(), 1);
  EXPECT_EQ(metrics.whole_request.counts().all, 0);
}

}  // namespace
}  // namespace slime::engine
