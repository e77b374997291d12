#include "kernels/gpu/attention_levels.h"

namespace slime::kernels {

std::optional<std::vector<AttentionLevel>> attention_levels(const std::vector<Segment>& segments,
                                                            int64_t window) {
  std::vector<AttentionLevel> levels(1);
  levels[0].causal = true;
  std::vector<std::size_t> chain;  // from a root to the segment before
  const auto close = [&](int64_t end) {
    const Segment& segment = segments[chain.back()];
    const std::size_t level = chain.size();
    chain.pop_back();
    if (end == segment.end) return;  // nobody continues it
    if (levels.size() <= level) levels.resize(level + 1);
    levels[level].pairs.push_back({segment.end, end, segment.begin, segment.end});
  };
  int64_t end = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    while (!chain.empty() && static_cast<int32_t>(chain.back()) != segment.parent)
      close(segment.begin);
    if (chain.empty() && segment.parent >= 0) return std::nullopt;
    chain.push_back(i);
    levels[0].pairs.push_back({segment.begin, segment.end, segment.begin, segment.end});
    end = segment.end;
    if (window > 0) {
      int64_t length = 0;
      for (const std::size_t ancestor : chain)
        length += segments[ancestor].end - segments[ancestor].begin;
      if (chain.size() > 1 && length > window) return std::nullopt;
    }
  }
  while (!chain.empty()) close(end);
  return levels;
}

}  // namespace slime::kernels
