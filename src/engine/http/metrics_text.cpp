#include "engine/http/metrics_text.h"

namespace slime::engine {
namespace {

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

MetricsText::MetricsText(std::string_view label, std::string_view value)
    : label_(fmt::format("{}=\"{}\"", label, escaped(value))) {}

void MetricsText::begin(std::string_view name, std::string_view type, std::string_view help) {
  text_ += fmt::format("# HELP sglang:{0} {1}\n# TYPE sglang:{0} {2}\n", name, help, type);
}

void MetricsText::histogram(std::string_view name, std::string_view help,
                            const LatencyHistogram& histogram) {
  begin(name, "histogram", help);
  const LatencyHistogram::Counts counts = histogram.counts();
  for (std::size_t i = 0; i < counts.at_most.size(); ++i) {
    text_ += fmt::format("sglang:{}_bucket{{{},le=\"{}\"}} {}\n", name, label_,
                         histogram.bounds()[i], counts.at_most[i]);
  }
  text_ += fmt::format("sglang:{}_bucket{{{},le=\"+Inf\"}} {}\n", name, label_, counts.all);
  text_ += fmt::format("sglang:{}_sum{{{}}} {}\n", name, label_, counts.sum_seconds);
  text_ += fmt::format("sglang:{}_count{{{}}} {}\n", name, label_, counts.all);
}

}  // namespace slime::engine
