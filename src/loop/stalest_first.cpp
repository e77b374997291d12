#include "loop/stalest_first.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "rollout/older_tokens.h"

namespace slime::loop {

buffer::WaitingChoice stalest_first(const std::deque<Group>& waiting, int64_t count) {
  std::vector<WeightVersion> versions;
  for (const Group& group : waiting) {
    versions.push_back(
        rollout::oldest_version(group).value_or(std::numeric_limits<WeightVersion>::max()));
  }
  std::vector<std::size_t> order(waiting.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t place) { return versions[place]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max<int64_t>(count, 0))));
  buffer::WaitingChoice choice{.taken = std::move(order), .left = {}};
  const std::set<std::size_t> taken(choice.taken.begin(), choice.taken.end());
  for (std::size_t place = 0; place < waiting.size(); ++place)
    if (!taken.contains(place)) choice.left.push_back(place);
  return choice;
}

}  // namespace slime::loop
