#include "kernels/delta_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace slime::kernels {
namespace {

/// A run of tokens of one segment.
struct Chunk {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t level = 0;
  int64_t before = 0;  // a chunk, or in level 0 the number of a root
};

/// The token some places before the first one of a segment: a row of the batch, or a number of places
/// before the beginning of a root.
struct Ancestor {
  int64_t row = -1;  // or
  int64_t root = -1;
  int64_t distance = 0;  // from the root's first token
};

Ancestor ancestor_of(const std::vector<Segment>& segments, const std::vector<int64_t>& root_of,
                     size_t segment, int64_t distance) {
  const Segment* at = &segments[segment];
  while (at->parent >= 0) {
    at = &segments[static_cast<size_t>(at->parent)];
    const int64_t size = at->end - at->begin;
    if (distance <= size) return {at->end - distance, -1, 0};
    distance -= size;
  }
  return {-1, root_of[segment], distance};
}

Tensor index_tensor(const std::vector<int64_t>& numbers, at::Device device) {
  return at::tensor(numbers, at::kLong).to(device);
}

}  // namespace

DeltaPlan make_delta_plan(const std::vector<Segment>& segments, int64_t taps, bool have_start,
                          at::Device device) {
  DeltaPlan plan;
  const int64_t tokens = std::ranges::max(segments, {}, &Segment::end).end;
  std::vector<int64_t> root_of(segments.size());
  std::vector<Chunk> chunks;
  std::vector<int64_t> last(segments.size());
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const auto parent = static_cast<size_t>(std::max(segment.parent, 0));
    root_of[s] = segment.parent < 0 ? plan.num_roots++ : root_of[parent];
    int64_t before = segment.parent < 0 ? root_of[s] : last[parent],
            level = segment.parent < 0 ? 0 : chunks[static_cast<size_t>(last[parent])].level + 1;
    for (int64_t begin = segment.begin; begin < segment.end; begin += kDeltaChunk) {
      chunks.push_back({begin, std::min(begin + kDeltaChunk, segment.end), level++, before});
      before = static_cast<int64_t>(chunks.size()) - 1;
    }
    last[s] = before;
  }

  // Chunks in the order of their levels, of their segments within one.
  std::vector<int64_t> order(chunks.size()), place(chunks.size());
  std::iota(order.begin(), order.end(), 0);
  const auto level_of = [&](int64_t chunk) { return chunks[static_cast<size_t>(chunk)].level; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return level_of(a) < level_of(b); });
  std::vector<int64_t> rows(chunks.size() * kDeltaChunk, tokens), before(chunks.size()),
      place_of_token(static_cast<size_t>(tokens));
  for (size_t m = 0; m < order.size(); ++m) {
    const Chunk& chunk = chunks[static_cast<size_t>(order[m])];
    if (chunk.level == static_cast<int64_t>(plan.level_starts.size()))
      plan.level_starts.push_back(static_cast<int64_t>(m));
    place[static_cast<size_t>(order[m])] = static_cast<int64_t>(m);
    const bool is_first = chunk.level == 0;
    before[m] = is_first ? chunk.before
                         : place[static_cast<size_t>(chunk.before)] -
                               plan.level_starts[static_cast<size_t>(chunk.level - 1)];
    for (int64_t row = chunk.begin; row < chunk.end; ++row) {
      const auto slot = static_cast<int64_t>(m) * kDeltaChunk + row - chunk.begin;
      rows[static_cast<size_t>(slot)] = row;
      place_of_token[static_cast<size_t>(row)] = slot;
    }
  }
  plan.level_starts.push_back(static_cast<int64_t>(chunks.size()));
  for (const int64_t chunk : last) plan.last_chunks.push_back(place[static_cast<size_t>(chunk)]);

  const int64_t zeros = tokens + (have_start ? plan.num_roots * (taps - 1) : 0);
  std::vector<int64_t> sources(static_cast<size_t>(taps * tokens));
  for (size_t s = 0; s < segments.size(); ++s) {
    for (int64_t row = segments[s].begin; row < segments[s].end; ++row) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t back = taps - 1 - tap, inside = row - segments[s].begin;
        int64_t source = row - back;
        if (back > inside) {
          const Ancestor found = ancestor_of(segments, root_of, s, back - inside);
          source = found.row;
          if (source < 0)
            source = have_start ? tokens + (found.root + 1) * (taps - 1) - found.distance : zeros;
        }
        sources[static_cast<size_t>(tap * tokens + row)] = source;
      }
    }
  }
  plan.source_JT = index_tensor(sources, device).view({taps, tokens});
  plan.row_MC = index_tensor(rows, device);
  plan.place_T = index_tensor(place_of_token, device);
  plan.before_M = index_tensor(before, device);
  return plan;
}

}  // namespace slime::kernels
