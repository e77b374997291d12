#include "algo/overlong_penalty.h"

#include <algorithm>

namespace slime::algo {

double overlong_penalty(const OverlongPenalty& how, int64_t length) {
  if (how.buffer <= 0) return length > how.max_length ? -how.factor : 0.0;
  const auto over = static_cast<double>(length - (how.max_length - how.buffer));
  return -how.factor * std::clamp(over / static_cast<double>(how.buffer), 0.0, 1.0);
}

}  // namespace slime::algo
