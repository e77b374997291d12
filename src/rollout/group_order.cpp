#include "rollout/group_order.h"

namespace slime::rollout {

int64_t GroupOrder::join(GroupInFlight& flight) {
  if (by_ == By::kCompletion) return 0;
  std::vector<bool> draws;
  for (Draw& draw : flight.draws) {
    draws.push_back(draw.asks_engine);
    draw_of_number_.push_back(&draw);
  }
  return time_.join(flight.group.ordinal, draws);
}

std::optional<int64_t> GroupOrder::front() {
  while (finished_.empty()) {
    if (by_ == By::kCompletion) return std::nullopt;
    const std::vector<int64_t> groups =
        time_.next_groups([this](int64_t number) { return draw(number).num_sampled.load(); });
    finished_.assign(groups.begin(), groups.end());
    if (finished_.empty() && !has_reached_awaited()) return std::nullopt;
  }
  return finished_.front();
}

bool GroupOrder::has_reached_awaited() {
  if (!time_.awaited()) return false;
  Draw& lagging = draw(time_.awaited()->number);
  lagging.awaited = time_.awaited()->num_tokens;
  return lagging.num_sampled >= time_.awaited()->num_tokens;
}

}  // namespace slime::rollout
