#pragma once

/// The order in which a step judges its groups: virtual time (virtual_time.h) over groups in
/// flight. Where functions of the user's draw, how long a sample takes is no matter of its tokens:
/// there groups are judged in the order in which they finish.

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "rollout/session.h"
#include "rollout/virtual_time.h"

namespace slime::rollout {

class GroupOrder {
 public:
  enum class By { kVirtualTime, kCompletion };
  GroupOrder(By by, int64_t num_slots) : by_(by), time_(num_slots) {}

  /// The group joins at the present tick. Returns the number of its first sample. `flight` lives
  /// until it was front().
  int64_t join(GroupInFlight& flight);
  /// The sample has ended after this many new tokens.
  void ended(int64_t number, int64_t num_tokens) {
    if (by_ == By::kVirtualTime) time_.ended(number, num_tokens);
  }

  /// All samples of the group are sampled and scored.
  void done(int64_t ordinal) {
    if (by_ == By::kCompletion) finished_.push_back(ordinal);
  }

  /// The group to be judged next, by its ordinal, until pop(). Nothing: more has to be sampled first;
  /// the session is told when it is (Draw::awaited).
  std::optional<int64_t> front();
  void pop() { finished_.pop_front(); }

  /// Null where groups are judged as they finish.
  const VirtualTime* time() const { return by_ == By::kVirtualTime ? &time_ : nullptr; }

 private:
  /// Asks to be told when virtual time can move on. True: it can already.
  bool has_reached_awaited();
  Draw& draw(int64_t number) { return *draw_of_number_[static_cast<std::size_t>(number)]; }

  const By by_;
  VirtualTime time_;
  std::vector<Draw*> draw_of_number_;  // by number in virtual time
  std::deque<int64_t> finished_;       // groups of the present tick that are not judged yet
};

}  // namespace slime::rollout
