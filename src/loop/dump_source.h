#pragma once

/// Groups of an earlier run, from the files of its --save-debug-rollout-data, or from those of the original (.pt):
/// training alone, as often as one likes, on the same responses.

#include <string>

#include "loop/group_source.h"
#include "report/recorder.h"

namespace slime::loop {

class DumpSource final : public GroupSource {
 public:
  /// `pattern` contains {rollout_id}; of each file the first `share` of its groups are taken, one
  /// at least. `recorder` outlives the object.
  DumpSource(std::string pattern, double share, report::Recorder& recorder)
      : pattern_(std::move(pattern)), share_(share), recorder_(recorder) {}

  /// Throws ConfigError naming file and line of what cannot be read.
  report::Collected take(int64_t step) override;

 private:
  std::string pattern_;
  double share_;
  report::Recorder& recorder_;
};

}  // namespace slime::loop
