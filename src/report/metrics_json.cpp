#include "report/metrics_json.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace slime::report {
namespace {

/// How many steps lie between two points of a series, in the median; 1 where there are not two.
int64_t usual_stride(const MetricSeries& series) {
  if (series.steps.size() < 2) return 1;
  std::vector<int64_t> strides(series.steps.size() - 1);
  for (std::size_t i = 0; i < strides.size(); ++i)
    strides[i] = series.steps[i + 1] - series.steps[i];
  const auto middle = strides.begin() + static_cast<std::ptrdiff_t>(strides.size() / 2);
  std::ranges::nth_element(strides, middle);
  return *middle;
}

}  // namespace

json::value finite_json(double value) {
  return std::isfinite(value) ? json::value(value) : json::value();
}

json::object series_json(const MetricSeries& series, bool is_joined) {
  const int64_t stride = usual_stride(series);
  json::array steps, values;
  for (std::size_t i = 0; i < series.steps.size(); ++i) {
    if (i > 0 && !is_joined && series.steps[i] - series.steps[i - 1] >= 2 * stride) {
      steps.push_back(series.steps[i - 1] + stride);
      values.emplace_back(nullptr);
    }
    steps.push_back(series.steps[i]);
    values.push_back(finite_json(series.values[i]));
  }
  return {{"steps", std::move(steps)}, {"values", std::move(values)}};
}

json::object metrics_json(const RunMetrics& metrics) {
  json::object out;
  for (const auto& [name, series] : metrics.series)
    out[name] = series_json(series, name.starts_with("eval/"));
  return out;
}

}  // namespace slime::report
