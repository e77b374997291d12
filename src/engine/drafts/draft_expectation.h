#pragma once

/// Expectation of drafts on a device that computes a step while the next one is planned.
///
/// Drafts follow a sequence's last token, which is not known while its step is in flight. So a step that may get
/// drafts costs a round trip to the host, and it is spent where drafts are likely: as long as steps get some, up to
/// three that get none in a row, and else on one step now and then. That is after 8 steps, after 16 more where it
/// got none, and every 32 from then on.

#include <algorithm>
#include <cstdint>

namespace slime::engine {

class DraftExpectation {
 public:
  /// The next step should be planned when all tokens are known.
  bool is_due() const { return num_left_ == 0; }

  /// A step was planned when all tokens were known.
  void planned(bool has_drafts) {
    if (has_drafts) {
      *this = {};
      patience_ = kPatience;
      return;
    }
    if (patience_ > 0 && --patience_ > 0) return;
    num_left_ = wait_;
    wait_ = std::min(2 * wait_, kMostWait);
  }
  /// A step was planned while tokens were in flight.
  void ran_ahead() { num_left_ = std::max<int64_t>(num_left_ - 1, 0); }

 private:
  /// A sequence has drawn no more tokens meanwhile than its text takes in at a time (engine/drafts/draft_texts.h).
  static constexpr int64_t kPatience = 4, kFirstWait = 8, kMostWait = 32;

  int64_t patience_ = 0;  // steps without drafts that do not end it; 0: drafts are not likely
  int64_t wait_ = kFirstWait;
  int64_t num_left_ = 0;  // steps that run ahead before one that is planned with all tokens
};

}  // namespace slime::engine
