#include "kernels/gpu/windowed_rows.h"

#include <algorithm>

namespace slime::kernels {

std::vector<Segment> divided_segments(const std::vector<Segment>& segments, int64_t most_rows) {
  std::vector<Segment> divided;
  std::vector<int32_t> last;  // piece of each segment, which its children continue
  for (const Segment& segment : segments) {
    int32_t parent = segment.parent < 0 ? -1 : last[static_cast<std::size_t>(segment.parent)];
    for (int64_t begin = segment.begin; begin < segment.end; begin += most_rows) {
      divided.push_back(
          {begin, std::min(segment.end, begin + most_rows), parent, segment.has_queries});
      parent = static_cast<int32_t>(divided.size()) - 1;
    }
    last.push_back(parent);
  }
  return divided;
}

std::optional<WindowedRows> windowed_rows(const std::vector<Segment>& segments, int64_t window) {
  if (!are_all_queried(segments)) return std::nullopt;
  WindowedRows out;
  out.level.causal = true;
  out.place_T.resize(static_cast<std::size_t>(segments.empty() ? 0 : segments.back().end));
  const auto place = [&out] { return static_cast<int64_t>(out.row_G.size()); };
  for (const Segment& segment : segments) {
    const int64_t begin = place();
    std::vector<int64_t> before;  // nearest first
    for (int32_t i = segment.parent; i >= 0 && static_cast<int64_t>(before.size()) + 1 < window;) {
      const Segment& ancestor = segments[static_cast<std::size_t>(i)];
      for (int64_t row = ancestor.end;
           row-- > ancestor.begin && static_cast<int64_t>(before.size()) + 1 < window;)
        before.push_back(row);
      i = ancestor.parent;
    }
    for (std::size_t i = before.size(); i-- > 0;) {
      out.copy_P.push_back(place());
      out.row_G.push_back(before[i]);
    }
    for (int64_t row = segment.begin; row < segment.end; ++row) {
      out.place_T[static_cast<std::size_t>(row)] = place();
      out.row_G.push_back(row);
    }
    out.level.pairs.push_back({begin, place(), begin, place()});
  }
  return out;
}

}  // namespace slime::kernels
