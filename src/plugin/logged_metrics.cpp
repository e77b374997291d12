#include "plugin/logged_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

using net::FrameError;

constexpr std::size_t kMostNames = 4096, kLongestName = 200;

double number_of(std::string_view name, const json::value& value) {
  const double number = value.is_bool()     ? static_cast<double>(value.get_bool())
                        : value.is_number() ? value.to_number<double>()
                                            : std::nan("");
  if (!std::isfinite(number))
    throw FrameError(
        fmt::format("log: {} is {}; it should be a number", name, json_text(value).substr(0, 80)));
  return number;
}

void check_name(std::string_view name) {
  const bool is_fine = !name.empty() && name.size() <= kLongestName &&
                       std::ranges::none_of(name, [](unsigned char c) { return c < ' '; });
  if (!is_fine) throw FrameError("log: a name has 1 to 200 characters and no line break");
}

const json::object& part_of(const json::object& arguments, std::string_view name) {
  static const json::object nothing;
  const json::value* value = arguments.if_contains(name);
  if (value == nullptr) return nothing;
  if (!value->is_object()) throw FrameError(fmt::format("log: {} should be a dictionary", name));
  return value->get_object();
}

}  // namespace

void LoggedMetrics::add(const json::object& arguments) {
  report::Metrics metrics;
  for (const auto& [name, value] : part_of(arguments, "metrics")) {
    check_name(name);
    metrics[std::string(name)] = number_of(name, value);
  }
  std::map<std::string, Span> spans;
  for (const auto& [name, value] : part_of(arguments, "spans")) {
    check_name(name);
    const json::array* numbers = value.if_array();
    if (numbers == nullptr || numbers->size() != 3)
      throw FrameError(fmt::format("log: {} should be a count, seconds and the longest", name));
    spans[std::string(name)] = {.count = number_of(name, (*numbers)[0]),
                                .seconds = number_of(name, (*numbers)[1]),
                                .longest = number_of(name, (*numbers)[2])};
  }
  const std::lock_guard lock(mutex_);
  if (metrics_.size() + metrics.size() > kMostNames || spans_.size() + spans.size() > kMostNames)
    throw FrameError(fmt::format("log: more than {} names in a step", kMostNames));
  report::add_metrics(metrics_, metrics);
  for (const auto& [name, more] : spans) {
    Span& span = spans_[name];
    span.count += more.count;
    span.seconds += more.seconds;
    span.longest = std::max(span.longest, more.longest);
  }
}

report::Metrics LoggedMetrics::logged_by(const std::function<void()>& call) {
  const auto exchange = [this](report::Metrics with) {
    const std::lock_guard lock(mutex_);
    return std::exchange(metrics_, std::move(with));
  };
  report::Metrics of_step = exchange({});
  call();
  return exchange(std::move(of_step));
}

report::Metrics LoggedMetrics::take() {
  const std::lock_guard lock(mutex_);
  report::Metrics taken = std::exchange(metrics_, {});
  for (const auto& [name, span] : std::exchange(spans_, {})) {
    const std::string prefix = "rollout/trace/" + name;
    taken[prefix + "/count"] = span.count;
    taken[prefix + "/mean_seconds"] = span.count > 0 ? span.seconds / span.count : 0;
    taken[prefix + "/max_seconds"] = span.longest;
  }
  return taken;
}

}  // namespace slime::plugin
