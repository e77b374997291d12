#pragma once

namespace slime::reward {

/// Grading mode of a rule: whether it accepts the wrong answers that the original implementation
/// accepts (docs/rewards.md lists them).
enum class Grading {
  kOriginal,  // as the original: "--no-rm-strict"
  kStrict,    // as wrong
};

}  // namespace slime::reward
