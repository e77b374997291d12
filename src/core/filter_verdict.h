#pragma once

#include <cstdint>
#include <string>

namespace slime {

/// Verdict of a dynamic sampling filter on a finished group (spec 17.4).
struct FilterVerdict {
  bool keep = true;
  std::string reason;  // of a rejection; counted as rollout/dynamic_filter/drop_<reason>
  /// Keep it all the same when dropping it would start another round of sampling.
  bool keep_when_insufficient = false;
};

/// `remaining`: groups started in this step and not rejected, this one included. `target`: groups
/// the step needs.
inline bool should_drop(const FilterVerdict& verdict, int64_t remaining, int64_t target) {
  return !verdict.keep && !(verdict.keep_when_insufficient && remaining <= target);
}

}  // namespace slime
