#include "kernels/gpu/paged_units.h"

#include <algorithm>
#include <numeric>

#include "core/divide_up.h"
#include "core/error.h"

namespace slime::kernels {
namespace {

void add_unit(UnitPlan& plan, size_t sequence, int64_t tile) {
  plan.sequence_U.push_back(static_cast<int32_t>(sequence));
  plan.tile_U.push_back(static_cast<int32_t>(tile));
  plan.is_on_U.push_back(1);
}

/// A switched-off unit names sequence 0, which exists.
void pad(UnitPlan& plan, int64_t num_units) {
  plan.num_units = std::max(num_units, static_cast<int64_t>(plan.sequence_U.size()));
  plan.sequence_U.resize(plan.num_units, 0);
  plan.tile_U.resize(plan.num_units, 0);
  plan.is_on_U.resize(plan.num_units, 0);
}

std::vector<size_t> longest_first(std::span<const PagedSpan> sequences) {
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sequences[a].num_keys > sequences[b].num_keys;
  });
  return order;
}

int64_t tile_for(int64_t packed_rows) {
  return packed_rows <= 16 ? 16 : packed_rows <= 64 ? 64 : 128;
}

}  // namespace

UnitPlan plan_single_rows(std::span<const PagedSpan> sequences, int64_t num_launched,
                          int64_t group) {
  check(group <= 128, "query heads that share a key-value head fit into one tile");
  UnitPlan plan;
  plan.tile = tile_for(group);
  for (const size_t s : longest_first(sequences))
    if (sequences[s].num_rows == 1) add_unit(plan, s, 0);
  pad(plan, num_launched);
  return plan;
}

UnitPlan plan_prompts(std::span<const PagedSpan> sequences, int64_t group) {
  int64_t packed_rows = 0, count = 0;
  for (const PagedSpan& sequence : sequences) {
    if (sequence.num_rows == 1) continue;
    packed_rows += sequence.num_rows * group;
    ++count;
  }
  UnitPlan plan;
  if (count == 0) return plan;
  plan.tile = tile_for(packed_rows / count);
  for (const size_t s : longest_first(sequences)) {
    if (sequences[s].num_rows == 1) continue;
    // The last rows see the most keys: they go first.
    for (int64_t tile = divide_up(sequences[s].num_rows * group, plan.tile); tile-- > 0;)
      add_unit(plan, s, tile);
  }
  pad(plan, 0);
  return plan;
}

}  // namespace slime::kernels
