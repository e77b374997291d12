#include "kernels/gpu/paged_units.h"

#include <algorithm>
#include <numeric>

#include "core/divide_up.h"
#include "core/error.h"

namespace slime::kernels {
namespace {

constexpr int64_t kLeastChunk = 512;       // keys
constexpr int64_t kUnitsPerProcessor = 2;  // that are resident together

void add_unit(UnitPlan& plan, size_t sequence, int64_t tile, int64_t chunk = 0) {
  plan.sequence_U.push_back(static_cast<int32_t>(sequence));
  plan.tile_U.push_back(static_cast<int32_t>(tile));
  plan.chunk_U.push_back(static_cast<int32_t>(chunk));
  plan.is_on_U.push_back(1);
}

/// A switched-off unit names sequence 0, which exists.
void pad(UnitPlan& plan, int64_t num_units) {
  plan.num_units = std::max(num_units, static_cast<int64_t>(plan.sequence_U.size()));
  plan.sequence_U.resize(plan.num_units, 0);
  plan.tile_U.resize(plan.num_units, 0);
  plan.chunk_U.resize(plan.num_units, 0);
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

namespace {

bool is_tiled(const PagedSpan& sequence) { return sequence.num_rows > 1 && !sequence.is_packed; }
bool is_single(const PagedSpan& sequence) { return sequence.num_rows == 1; }

/// Thread blocks of a key-value head that run at once.
int64_t units_at_once(const KeySplit& split) {
  return kUnitsPerProcessor * split.num_processors / split.num_kv_heads;
}

int64_t chunk_for(int64_t keys, int64_t num_units) {
  return std::max(kLeastChunk, round_up(divide_up(keys, num_units), int64_t{128}));
}

/// Keys of a chunk, so that there are about as many units as run at once.
int64_t chunk_of(std::span<const PagedSpan> sequences, int64_t group, int64_t tile,
                 const KeySplit& split) {
  int64_t units = 0, keys = 0;  // keys: of all units
  for (const PagedSpan& sequence : sequences) {
    if (!is_tiled(sequence)) continue;
    const int64_t tiles = divide_up(sequence.num_rows * group, tile);
    units += tiles;
    keys += tiles * sequence.num_keys;
  }
  const int64_t wanted = units_at_once(split);
  return units * 2 > wanted ? 0 : chunk_for(keys, wanted);
}

void split_keys(UnitPlan& plan, std::span<const PagedSpan> sequences,
                bool (*is_in)(const PagedSpan&)) {
  plan.merge_starts.push_back(0);
  for (const PagedSpan& sequence : sequences) {
    plan.partial_starts.push_back(static_cast<int32_t>(plan.num_partials));
    const int64_t chunks =
        is_in(sequence) ? divide_up(sequence.num_keys, int64_t{plan.chunk_tokens}) : 0;
    for (int64_t row = 0; row < sequence.num_rows; ++row) {
      plan.num_partials += chunks;
      plan.merge_starts.push_back(static_cast<int32_t>(plan.num_partials));
    }
  }
}

}  // namespace

UnitPlan plan_single_rows(std::span<const PagedSpan> sequences, int64_t num_launched, int64_t group,
                          const KeySplit& split) {
  check(group <= 128, "query heads that share a key-value head fit into one tile");
  UnitPlan plan;
  plan.tile = tile_for(group);
  int64_t count = 0, keys = 0, longest = 0;
  for (const PagedSpan& sequence : sequences) {
    if (!is_single(sequence)) continue;
    ++count;
    keys += sequence.num_keys;
    longest = std::max(longest, sequence.num_keys);
  }
  const bool is_recorded = num_launched > 0;
  const int64_t at_once = units_at_once(split), launched = std::max(count, num_launched);
  const bool splits = count > 0 && launched * 2 <= at_once;
  if (splits) plan.chunk_tokens = static_cast<int32_t>(chunk_for(keys, at_once));
  // A recorded step has room for what its contexts grow to.
  const bool has_partials = splits && (is_recorded || plan.chunk_tokens < longest);
  if (has_partials) split_keys(plan, sequences, is_single);
  for (const size_t s : longest_first(sequences)) {
    if (!is_single(sequences[s])) continue;
    for (int64_t part = 0; part * plan.chunk_tokens < sequences[s].num_keys; ++part)
      add_unit(plan, s, 0, part);
  }
  if (has_partials && is_recorded) {
    // Each chunk but a sequence's last is as long as a unit's share of all keys, or longer.
    plan.partial_starts.resize(launched, static_cast<int32_t>(plan.num_partials));
    plan.merge_starts.resize(launched + 1, static_cast<int32_t>(plan.num_partials));
    plan.num_partials = launched + at_once;
    num_launched = launched + at_once;
  }
  pad(plan, num_launched);
  return plan;
}

UnitPlan plan_prompts(std::span<const PagedSpan> sequences, int64_t group, const KeySplit& split) {
  int64_t packed_rows = 0, count = 0, longest = 0;
  for (const PagedSpan& sequence : sequences) {
    if (!is_tiled(sequence)) continue;
    packed_rows += sequence.num_rows * group;
    longest = std::max(longest, sequence.num_keys);
    ++count;
  }
  UnitPlan plan;
  if (count == 0) return plan;
  plan.tile = std::min(tile_for(packed_rows / count), split.most_tile);
  const int64_t chunk = chunk_of(sequences, group, plan.tile, split);
  if (chunk > 0 && chunk < longest) {
    plan.chunk_tokens = static_cast<int32_t>(chunk);
    split_keys(plan, sequences, is_tiled);
  }
  for (const size_t s : longest_first(sequences)) {
    if (!is_tiled(sequences[s])) continue;
    // The last rows see the most keys: they go first.
    for (int64_t tile = divide_up(sequences[s].num_rows * group, plan.tile); tile-- > 0;)
      for (int64_t part = divide_up(sequences[s].num_keys, int64_t{plan.chunk_tokens}); part-- > 0;)
        add_unit(plan, s, tile, part);
  }
  pad(plan, 0);
  return plan;
}

}  // namespace slime::kernels
