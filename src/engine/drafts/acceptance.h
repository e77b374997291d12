#pragma once

/// Acceptance of a sequence's drafts from one source: how often the last 32 were right, and what that makes of the
/// chances that the source foretells (docs/decisions/0163-drafts.md, 4).
///
/// Drafts behind the first wrong one tell nothing and do not count. The source foretells a share for each draft; of
/// the last 32 that counted, as many are right as the sum of their shares says, times a ratio:
///
///   ratio = (number right + 2 * prior) / (sum of shares + 2), at most 1     the prior before the first draft
///   chance of draft j = ratio^j * product of the first j shares
///
/// A sequence whose drafts are not worth their rows gets no more, and would never be known to have become better. So
/// after some steps without drafts one draft is tried, with the source's chance: after 8 steps, twice as many behind
/// each that was wrong, up to 128, and every other step as long as they are right.

#include <array>
#include <cstdint>
#include <vector>

#include "engine/drafts/draft.h"

namespace slime::engine {

class Acceptance {
 public:
  /// Of the suffix index: shares of few places say little.
  static constexpr double kPriorOfTexts = 0.3;
  /// Of a draft layer, which was trained to give probabilities of the model's tokens.
  static constexpr double kPriorOfLayer = 0.7;

  explicit Acceptance(double prior_ratio = kPriorOfTexts) : prior_ratio_(prior_ratio) {}

  /// Drafts as the source proposes them for the next step become those to choose from, with the chances above.
  void calibrate(std::vector<Draft>& drafts);
  /// Of the drafts calibrated last, the first num_drafted were computed, and of them the first num_kept were right.
  void told(int64_t num_drafted, int64_t num_kept);

  double ratio() const;

 private:
  static constexpr int64_t kLast = 32;
  static constexpr int64_t kFirstWait = 8, kLeastWait = 1, kMostWait = 128;

  struct Tested {
    double share = 0;
    bool is_right = false;
  };

  double prior_ratio_;
  std::array<Tested, kLast> tested_;  // the latest at (num_tested_ - 1) % kLast
  int64_t num_tested_ = 0;
  std::vector<double> shares_;  // of the drafts calibrated last
  bool is_trial_ = false;       // they are one that is tried
  int64_t num_without_ = 0;     // steps since the last draft that was tested
  int64_t wait_ = kFirstWait;
};

}  // namespace slime::engine
