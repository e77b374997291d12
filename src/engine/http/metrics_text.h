#pragma once

/// Prometheus' text form of metrics:
///
///   # HELP sglang:num_running_reqs Requests being decoded.
///   # TYPE sglang:num_running_reqs gauge
///   sglang:num_running_reqs{model_name="m"} 3

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "engine/http/latency_histogram.h"

namespace slime::engine {

class MetricsText {
 public:
  /// One label on every line.
  MetricsText(std::string_view label, std::string_view value);

  void gauge(std::string_view name, std::string_view help, auto value) {
    begin(name, "gauge", help);
    text_ += fmt::format("sglang:{}{{{}}} {}\n", name, label_, value);
  }
  void counter(std::string_view name, std::string_view help, auto value) {
    begin(name, "counter", help);
    text_ += fmt::format("sglang:{}{{{}}} {}\n", name, label_, value);
  }
  void histogram(std::string_view name, std::string_view help, const LatencyHistogram& histogram);

  std::string take() { return std::move(text_); }

 private:
  void begin(std::string_view name, std::string_view type, std::string_view help);

  std::string label_;
  std::string text_;
};

}  // namespace slime::engine
