#include "engine/drafts/acceptance.h"

#include <algorithm>
#include <span>

#include "core/error.h"

namespace slime::engine {
namespace {

constexpr double kPriorWeight = 2;  // in drafts: the first ones already say more

}  // namespace

void Acceptance::calibrate(std::vector<Draft>& drafts) {
  shares_.clear();
  if (drafts.empty()) return;
  is_trial_ = ++num_without_ > wait_;
  if (is_trial_) drafts.resize(1);
  const double ratio = is_trial_ ? 1 : this->ratio();
  double foretold = 1;
  double power = 1;
  for (Draft& draft : drafts) {
    shares_.push_back(draft.chance / foretold);
    foretold = draft.chance;
    power *= ratio;
    draft.chance *= power;
  }
}

void Acceptance::told(int64_t num_drafted, int64_t num_kept) {
  check(num_drafted <= std::ssize(shares_) && num_kept <= num_drafted,
        "drafts that are told were calibrated, and no more are kept than were computed");
  if (num_drafted == 0) return;
  for (int64_t i = 0; i < std::min(num_kept + 1, num_drafted); ++i)
    tested_[num_tested_++ % kLast] = {.share = shares_[i], .is_right = i < num_kept};
  shares_.clear();
  num_without_ = 0;
  if (num_kept > 0)
    wait_ = is_trial_ ? kLeastWait : kFirstWait;
  else if (is_trial_)
    wait_ = std::min(wait_ * 2, kMostWait);
}

double Acceptance::ratio() const {
  double num_right = kPriorWeight * prior_ratio_;
  double num_foretold = kPriorWeight;
  for (const Tested& each : std::span(tested_).first(std::min(num_tested_, kLast))) {
    num_right += each.is_right ? 1 : 0;
    num_foretold += each.share;
  }
  return std::min(1.0, num_right / num_foretold);
}

}  // namespace slime::engine
