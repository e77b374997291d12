#include "rollout/older_tokens.h"

#include <algorithm>

#include "core/version_runs.h"

namespace slime::rollout {

WeightVersion newest_version(const Group& group) {
  WeightVersion newest = kNoVersion;
  for (const Sample& sample : group.samples) {
    for (const VersionRun& run : sample.versions) newest = std::max(newest, run.version);
  }
  return newest;
}

std::optional<WeightVersion> oldest_version(const Group& group) {
  std::optional<WeightVersion> oldest;
  for (const Sample& sample : group.samples) {
    for (const VersionRun& run : sample.versions) {
      if (run.version != kNoVersion) oldest = std::min(oldest.value_or(run.version), run.version);
    }
  }
  return oldest;
}

void mask_tokens_before(Group& group, WeightVersion version) {
  for (Sample& sample : group.samples) {
    std::size_t begin = 0;
    for (const VersionRun& run : sample.versions) {
      const auto count = static_cast<std::size_t>(run.num_tokens);
      if (run.version < version) {
        if (sample.loss_mask.empty())
          sample.loss_mask.assign(static_cast<std::size_t>(sample.response_length()), 1);
        std::fill_n(sample.loss_mask.begin() + static_cast<std::ptrdiff_t>(begin), count, 0);
      }
      begin += count;
    }
  }
}

}  // namespace slime::rollout
