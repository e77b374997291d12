#include "report/version_metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "core/version_runs.h"

namespace slime::report {
namespace {

struct Versions {
  WeightVersion oldest = std::numeric_limits<WeightVersion>::max();
  WeightVersion newest = std::numeric_limits<WeightVersion>::min();
  bool are_known() const { return oldest <= newest; }
  void add(WeightVersion version) {
    oldest = std::min(oldest, version);
    newest = std::max(newest, version);
  }
};

/// Mean and maximum of lags.
struct Lags {
  double sum = 0, max = 0, count = 0;
  void add(WeightVersion lag) {
    sum += static_cast<double>(lag);
    max = std::max(max, static_cast<double>(lag));
    ++count;
  }
  double mean() const { return sum / count; }
};

/// Lags from here on are counted together.
constexpr WeightVersion kLastLag = 8;

}  // namespace

Metrics version_metrics(std::span<const Group> groups, WeightVersion current) {
  Versions all;
  double tokens = 0, stale_tokens = 0, token_lag = 0, behind_update = 0;
  std::array<double, kLastLag + 1> of_lag{};
  Lags oldest, newest, admission;
  for (const Group& group : groups) {
    if (group.begun_with) admission.add(std::max<WeightVersion>(0, current - *group.begun_with));
    for (const Sample& sample : group.samples) {
      Versions own;
      std::optional<WeightVersion> first;
      for (const VersionRun& run : sample.versions) {
        if (run.version == kNoVersion) continue;
        const auto count = static_cast<double>(run.num_tokens);
        const WeightVersion lag = current - run.version;
        own.add(run.version);
        tokens += count;
        token_lag += count * static_cast<double>(lag);
        of_lag.at(static_cast<std::size_t>(std::clamp<WeightVersion>(lag, 0, kLastLag))) += count;
        if (run.version != current) stale_tokens += count;
        if (run.version != first.value_or(run.version)) behind_update += count;
        if (!first) first = run.version;
      }
      if (!own.are_known()) continue;
      all.add(own.oldest);
      all.add(own.newest);
      oldest.add(current - own.oldest);
      newest.add(current - own.newest);
    }
  }
  if (oldest.count == 0) return {};
  const std::string prefix = "rollout/weight_version/";
  Metrics metrics{{prefix + "oldest", static_cast<double>(all.oldest)},
                  {prefix + "newest", static_cast<double>(all.newest)},
                  {prefix + "lag_mean", token_lag / tokens},
                  {prefix + "lag_max", static_cast<double>(current - all.oldest)},
                  {prefix + "lag_oldest", oldest.mean()},
                  {prefix + "lag_oldest_max", oldest.max},
                  {prefix + "lag_newest", newest.mean()},
                  {prefix + "lag_newest_max", newest.max},
                  {prefix + "stale_share", stale_tokens / tokens},
                  {prefix + "behind_update_share", behind_update / tokens}};
  for (std::size_t lag = 0; lag < of_lag.size(); ++lag) {
    if (lag > 0 && of_lag.at(lag) == 0) continue;
    const std::string name = std::to_string(lag) + (lag == kLastLag ? "_up" : "");
    metrics[prefix + "lag_share/" + name] = of_lag.at(lag) / tokens;
  }
  if (admission.count > 0) {
    metrics[prefix + "lag_admission_mean"] = admission.mean();
    metrics[prefix + "lag_admission_max"] = admission.max;
  }
  return metrics;
}

Metrics staleness_metrics(std::span<const Group> groups, WeightVersion current) {
  Lags staleness;
  double unknown = 0, several = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      Versions own;
      for (const VersionRun& run : sample.versions)
        if (run.version != kNoVersion) own.add(run.version);
      if (!own.are_known() || own.oldest > current) {
        ++unknown;
        continue;
      }
      staleness.add(current - own.oldest);
      several += own.oldest != own.newest ? 1 : 0;
    }
  }
  Metrics metrics{{"rollout/staleness/unknown_count", unknown}};
  if (staleness.count == 0) return metrics;
  metrics["rollout/staleness/mean"] = staleness.mean();
  metrics["rollout/staleness/max"] = staleness.max;
  metrics["rollout/staleness/multi_version_frac"] = several / staleness.count;
  return metrics;
}

}  // namespace slime::report
