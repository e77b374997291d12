#include "loop/version_metrics.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/version_runs.h"

namespace slime::loop {
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

}  // namespace

Metrics version_metrics(std::span<const Group> groups, WeightVersion current) {
  Versions all;
  double tokens = 0, stale_tokens = 0, token_lag = 0;
  double samples = 0, oldest_lag = 0, newest_lag = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      Versions own;
      for (const VersionRun& run : sample.versions) {
        if (run.version == kNoVersion) continue;
        const auto count = static_cast<double>(run.num_tokens);
        own.add(run.version);
        tokens += count;
        token_lag += count * static_cast<double>(current - run.version);
        if (run.version != current) stale_tokens += count;
      }
      if (!own.are_known()) continue;
      all.add(own.oldest);
      all.add(own.newest);
      ++samples;
      oldest_lag += static_cast<double>(current - own.oldest);
      newest_lag += static_cast<double>(current - own.newest);
    }
  }
  if (samples == 0) return {};
  const std::string prefix = "rollout/weight_version/";
  return {{prefix + "oldest", static_cast<double>(all.oldest)},
          {prefix + "newest", static_cast<double>(all.newest)},
          {prefix + "lag_mean", token_lag / tokens},
          {prefix + "lag_max", static_cast<double>(current - all.oldest)},
          {prefix + "lag_oldest", oldest_lag / samples},
          {prefix + "lag_newest", newest_lag / samples},
          {prefix + "stale_share", stale_tokens / tokens}};
}

}  // namespace slime::loop
