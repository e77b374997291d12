#include "buffer/ordinal_set.h"

#include <iterator>
#include <limits>

namespace slime::buffer {

bool OrdinalSet::contains(int64_t ordinal) const {
  const auto behind = intervals_.upper_bound(ordinal);
  return behind != intervals_.begin() && std::prev(behind)->second >= ordinal;
}

void OrdinalSet::append_interval(int64_t first, int64_t last) {
  intervals_.emplace_hint(intervals_.end(), first, last);
  size_ += last - first + 1;
}

bool OrdinalSet::insert(int64_t ordinal) {
  if (contains(ordinal)) return false;
  ++size_;
  const auto behind = intervals_.upper_bound(ordinal);
  // No ordinal is beyond the largest number, so nothing begins there.
  const bool joins_next = ordinal < std::numeric_limits<int64_t>::max() &&
                          behind != intervals_.end() && behind->first == ordinal + 1;
  const int64_t last = joins_next ? behind->second : ordinal;
  const bool joins_previous =
      behind != intervals_.begin() && std::prev(behind)->second == ordinal - 1;
  if (joins_previous) std::prev(behind)->second = last;
  if (joins_next) intervals_.erase(behind);
  if (!joins_previous) intervals_.emplace(ordinal, last);
  return true;
}

}  // namespace slime::buffer
