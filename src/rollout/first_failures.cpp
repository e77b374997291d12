#include "rollout/first_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "core/own_command.h"

namespace slime::rollout {
namespace {

/// Parts of the names of errors that may not come again: a server that is not up yet.
bool may_pass(std::string_view error) {
  constexpr std::array<std::string_view, 6> kParts{"Connect", "Timeout",  "HTTP",
                                                   "Client",  "URLError", "Cancelled"};
  return std::ranges::any_of(
      kParts, [&](std::string_view part) { return error.find(part) != std::string_view::npos; });
}

}  // namespace

std::optional<FailureKind> failure_kind(const std::string& failure) {
  const std::size_t open = failure.rfind(" (");
  if (open == std::string::npos || !failure.ends_with(')')) return std::nullopt;
  const std::string place = failure.substr(open + 2, failure.size() - open - 3);
  const std::size_t line = place.rfind(':');
  if (line == std::string::npos || line + 1 == place.size() ||
      place.find_first_not_of("0123456789", line + 1) != std::string::npos)
    return std::nullopt;
  // "reward: ValueError", without what it says, which may differ from sample to sample.
  const std::size_t whose = failure.find(": ");
  if (whose >= open) return std::nullopt;
  const std::size_t end = std::min(failure.find(": ", whose + 2), open);
  std::string error = failure.substr(0, end);
  if (may_pass(error)) return std::nullopt;
  return FailureKind{.error = std::move(error), .place = place};
}

void FirstFailures::see(const Sample& sample) {
  const std::optional<FailureKind> kind =
      sample.status == Status::kFailed ? failure_kind(sample.failure) : std::nullopt;
  is_over_ = is_over_ || !kind || (kind_ && *kind_ != *kind);
  kind_ = kind;
}

void FirstFailures::see(const Group& group) {
  for (const Sample& sample : group.samples) {
    if (sample.status == Status::kAborted) return;  // it says nothing about the function
  }
  for (const Sample& sample : group.samples) see(sample);
  if (is_over_) return;
  ++num_groups_;
  num_samples_ += static_cast<int64_t>(group.samples.size());
  if (num_groups_ < kGroups || num_samples_ < kSamples) return;
  throw ConfigError(fmt::format(
      "{}: the first {} samples of this start all failed here, and nothing was trained. Sample {}: "
      "{}. `{}` tries a reward without a run",
      kind_->place, num_samples_, group.samples.front().ordinal, group.samples.front().failure,
      own_command("score --custom-rm-path FILE")));
}

}  // namespace slime::rollout
