#pragma once

namespace slime::reward {

/// How a rule treats answers that the original implementation takes for right although they are not
/// (docs/rewards.md lists them).
enum class Grading {
  kOriginal,  // as the original: "--no-rm-strict"
  kStrict,    // as wrong
};

}  // namespace slime::reward
