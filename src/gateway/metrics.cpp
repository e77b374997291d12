#include "gateway/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace slime::gateway {
namespace {

/// Of one metric, from all workers.
struct Family {
  std::string help, type;  // whole lines
  std::string samples;
};

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == ':';
}

/// "# TYPE NAME counter": NAME; empty for other lines.
std::string_view name_in_comment(std::string_view line, std::string_view word) {
  if (!line.starts_with(word)) return {};
  line.remove_prefix(word.size());
  return line.substr(0, line.find(' '));
}

/// Puts a label before those of the sample; empty for a line that is none.
std::string with_label(std::string_view line, std::string_view name, std::string_view label) {
  const std::string_view rest = line.substr(name.size());
  if (rest.starts_with("{}")) return fmt::format("{}{{{}}}{}\n", name, label, rest.substr(2));
  if (rest.starts_with('{')) return fmt::format("{}{{{},{}\n", name, label, rest.substr(1));
  if (rest.starts_with(' ')) return fmt::format("{}{{{}}}{}\n", name, label, rest);
  return {};
}

int state_number(CircuitBreaker::State state) {
  switch (state) {
    case CircuitBreaker::State::kClosed:
      return 0;
    case CircuitBreaker::State::kOpen:
      return 1;
    case CircuitBreaker::State::kHalfOpen:
      return 2;
  }
  return 0;
}

}  // namespace

std::string metrics_text(const Workers& workers, const Proxy& proxy) {
  std::string text;
  const auto head = [&](const char* name, const char* type, const char* help) {
    text += fmt::format("# HELP sgl_router_{0} {1}\n# TYPE sgl_router_{0} {2}\n", name, help, type);
  };
  const auto one = [&](const char* name, const char* type, const char* help, int64_t value) {
    head(name, type, help);
    text += fmt::format("sgl_router_{} {}\n", name, value);
  };
  const ProxyCounters& counters = proxy.counters();
  one("requests_total", "counter", "Requests that were to be proxied.", counters.num_requests);
  head("responses_total", "counter", "Answers to them, by status.");
  for (const auto& [status, count] : counters.statuses())
    text += fmt::format("sgl_router_responses_total{{status=\"{}\"}} {}\n", status, count);
  one("retries_total", "counter", "Times that a request went to a further worker.",
      counters.num_retries);
  one("cut_responses_total", "counter", "Answers whose worker did not end them.", counters.num_cut);
  one("cancelled_requests_total", "counter", "Requests whose client went away.", counters.num_left);
  one("refused_requests_total", "counter", "Requests beyond the limit of the router.",
      counters.num_refused);
  one("requests_without_worker_total", "counter", "Requests for which no worker was ready.",
      counters.num_nowhere);
  one("running_requests_total", "gauge", "Requests under way.", proxy.admission().num_running());
  one("queued_requests", "gauge", "Requests that wait for a place.",
      proxy.admission().num_waiting());

  const std::vector<Workers::View> views = workers.list();
  one("active_workers", "gauge", "Workers that are healthy.",
      std::ranges::count_if(views, &Workers::View::is_healthy));
  const auto each = [&](const char* name, const char* type, const char* help, auto value) {
    head(name, type, help);
    for (const Workers::View& view : views)
      text += fmt::format("sgl_router_{}{{worker=\"{}\"}} {}\n", name, view.address.url(),
                          static_cast<int64_t>(value(view)));
  };
  using View = Workers::View;
  each("worker_health", "gauge", "1: healthy.", [](const View& v) { return v.is_healthy; });
  each("worker_draining", "gauge", "1: it gets nothing new.",
       [](const View& v) { return v.is_draining; });
  each("running_requests", "gauge", "Requests under way in a worker.",
       [](const View& v) { return v.load; });
  each("processed_requests_total", "counter", "Requests that a worker was given.",
       [](const View& v) { return v.num_requests; });
  each("request_errors_total", "counter", "Of those, that failed in it.",
       [](const View& v) { return v.num_failures; });
  each("cb_state", "gauge", "Circuit breaker: 0 closed, 1 open, 2 half open.",
       [](const View& v) { return state_number(v.breaker); });
  return text;
}

std::string merge_metrics(const std::vector<std::pair<std::string, std::string>>& texts) {
  std::vector<std::string> order;
  std::map<std::string, Family, std::less<>> families;
  const auto family = [&](std::string_view name) -> Family& {
    const auto found = families.find(name);
    if (found != families.end()) return found->second;
    order.emplace_back(name);
    return families[std::string(name)];
  };
  for (const auto& [address, text] : texts) {
    const std::string label = fmt::format("worker_addr=\"{}\"", address);
    std::string current;  // the last metric that a comment named: histograms have several names
    std::string_view rest = text;
    while (!rest.empty()) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      const std::string_view helped = name_in_comment(line, "# HELP ");
      const std::string_view typed = name_in_comment(line, "# TYPE ");
      if (!helped.empty() || !typed.empty()) {
        current = helped.empty() ? typed : helped;
        Family& of = family(current);
        std::string& kept = helped.empty() ? of.type : of.help;
        if (kept.empty()) kept = std::string(line) + "\n";
        continue;
      }
      const auto end = std::ranges::find_if_not(line, is_name_char);
      const std::string_view name = line.substr(0, static_cast<std::size_t>(end - line.begin()));
      if (name.empty()) continue;
      const bool is_of_current = !current.empty() && name.starts_with(current);
      const std::string sample = with_label(line, name, label);
      if (!sample.empty()) family(is_of_current ? current : name).samples += sample;
    }
  }
  std::string merged;
  for (const std::string& name : order) {
    const Family& of = families.find(name)->second;
    merged += of.help + of.type + of.samples;
  }
  return merged;
}

}  // namespace slime::gateway
