#include "report/untrained_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/version_runs.h"

namespace slime::report {
namespace {

constexpr double kTold = 0.01;  // a share above which a cause is told
constexpr std::string_view kDropped = "dropped_";
constexpr std::string_view kDiscarded = "discarded";

/// Those that weights made, trained or not; without versions, those that the mask trains.
int64_t num_sampled(const Sample& sample) {
  if (sample.versions.empty()) return sample.effective_response_length();
  int64_t count = 0;
  for (const VersionRun& run : sample.versions)
    if (run.version != kNoVersion) count += run.num_tokens;
  return count;
}

std::string words_of(const std::string& cause) {
  if (cause == "lost")
    return "of calls whose tokens no sample that the user's function returned has, or that it "
           "masked";
  if (cause == "masked") return "masked by their loss mask";
  if (cause == "older") return "of older weights (--mask-offpolicy-in-partial-rollout)";
  if (cause == "removed") return "of samples with remove_sample";
  if (cause == "failed") return "of samples that failed or were aborted without a reward";
  if (cause == kDiscarded) return "sampled after the step had its groups, or not kept by rule";
  if (cause.starts_with(kDropped))
    return fmt::format("of groups that were dropped ({})", cause.substr(kDropped.size()));
  return cause;
}

}  // namespace

int64_t SampledTokens::all() const {
  int64_t sum = trained;
  for (const auto& [cause, count] : untrained) sum += count;
  return sum;
}

SampledTokens sampled_tokens(std::span<const Group> groups, UntrainedTokens others,
                             bool masks_are_lost) {
  SampledTokens tokens{.untrained = std::move(others)};
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      const int64_t trained = sample.effective_response_length();
      if (!masks_are_lost)
        tokens.untrained["masked"] += std::max<int64_t>(num_sampled(sample) - trained, 0);
      const bool has_no_verdict = sample.reward.is_null() && (sample.status == Status::kFailed ||
                                                              sample.status == Status::kAborted);
      if (sample.remove_sample) {
        tokens.untrained["removed"] += trained;
      } else if (has_no_verdict) {
        tokens.untrained["failed"] += trained;
      } else {
        tokens.trained += trained;
      }
    }
  }
  // What was masked as of older weights is in the masks too.
  if (const auto older = tokens.untrained.find("older");
      older != tokens.untrained.end() && !masks_are_lost)
    tokens.untrained["masked"] -= std::min(tokens.untrained["masked"], older->second);
  std::erase_if(tokens.untrained, [](const auto& each) { return each.second <= 0; });
  return tokens;
}

int64_t num_trained_tokens(std::span<const Group> groups) {
  int64_t count = 0;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) count += sample.effective_response_length();
  return count;
}

Metrics untrained_metrics(const SampledTokens& tokens) {
  Metrics metrics;
  const int64_t all = tokens.all();
  if (all <= 0) return metrics;
  const auto late = tokens.untrained.find(std::string(kDiscarded));
  const int64_t decided = all - (late == tokens.untrained.end() ? 0 : late->second);
  const auto share = [](int64_t count, int64_t of) {
    return of > 0 ? static_cast<double>(count) / static_cast<double>(of) : 0;
  };
  metrics["perf/untrained_sampled_tokens"] = share(all - tokens.trained, all);
  metrics["rollout/untrained_sampled_tokens"] = share(decided - tokens.trained, decided);
  for (const auto& [cause, count] : tokens.untrained) {
    if (cause != kDiscarded) metrics["rollout/untrained/" + cause] = share(count, decided);
  }
  return metrics;
}

std::optional<std::string> UntrainedNotice::line(int64_t step, const SampledTokens& tokens) {
  const auto all = static_cast<double>(tokens.all());
  if (all <= 0) return std::nullopt;
  std::vector<std::pair<int64_t, std::string>> many;
  bool is_new = false;
  for (const auto& [cause, count] : tokens.untrained) {
    const double share = static_cast<double>(count) / all;
    if (share < kTold) continue;
    many.emplace_back(count, cause);
    const auto [told, is_first] = told_.emplace(cause, share);
    if (!is_first && share < 2 * told->second) continue;
    told->second = share;
    is_new = true;
  }
  if (!is_new) return std::nullopt;
  std::ranges::sort(many, std::greater<>());
  std::vector<std::string> parts;
  for (const auto& [count, cause] : many)
    parts.push_back(
        fmt::format("{:.1f} % {}", 100 * static_cast<double>(count) / all, words_of(cause)));
  return fmt::format(
      "step {}: {:.1f} % of the sampled tokens are not trained: {} "
      "(perf/untrained_sampled_tokens of each step)",
      step, 100 - 100 * static_cast<double>(tokens.trained) / all, fmt::join(parts, "; "));
}

}  // namespace slime::report
