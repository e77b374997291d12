#include "kernels/paged_units.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace slime::kernels {
namespace {

constexpr int64_t kLeastChunk = 64;   // keys: a page for each warp of a block
constexpr int64_t kMostChunks = 256;  // of a sequence: their shares are merged in shared memory
constexpr int64_t kPage = 16;
/// Blocks of the attention kernel that fit on a processor at once.
constexpr int64_t kBlocksPerProcessor = 3;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void add_unit(UnitPlan& plan, size_t sequence, int64_t tile, int64_t chunk) {
  plan.sequence_U.push_back(static_cast<int32_t>(sequence));
  plan.tile_U.push_back(static_cast<int32_t>(tile));
  plan.chunk_U.push_back(static_cast<int32_t>(chunk));
  plan.is_on_U.push_back(1);
}

/// A switched-off unit names sequence 0, which exists.
void pad(UnitPlan& plan, int64_t num_units) {
  const auto used = static_cast<int64_t>(plan.sequence_U.size());
  check(used <= num_units, "planned units fit into those that are launched");
  plan.num_units = num_units;
  plan.sequence_U.resize(num_units, 0);
  plan.tile_U.resize(num_units, 0);
  plan.chunk_U.resize(num_units, 0);
  plan.is_on_U.resize(num_units, 0);
}

std::vector<size_t> longest_first(std::span<const PagedSpan> sequences) {
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sequences[a].num_keys > sequences[b].num_keys;
  });
  return order;
}

int64_t count_chunks(std::span<const PagedSpan> sequences, int64_t chunk) {
  int64_t count = 0;
  for (const PagedSpan& sequence : sequences) count += ceil_div(sequence.num_keys, chunk);
  return count;
}

/// The smallest chunk whose units are no more than `limit`.
int64_t chunk_for(std::span<const PagedSpan> sequences, int64_t limit) {
  int64_t longest = 1;
  for (const PagedSpan& sequence : sequences) longest = std::max(longest, sequence.num_keys);
  int64_t low = std::max(kLeastChunk / kPage, ceil_div(longest, kMostChunks * kPage));
  int64_t high = std::max(low, ceil_div(longest, kPage));
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (count_chunks(sequences, middle * kPage) <= limit) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low * kPage;
}

/// Units that fill the processors once.
int64_t units_that_fill(const UnitOptions& options) {
  return std::max<int64_t>(1, kBlocksPerProcessor * options.num_processors / options.num_kv_heads);
}

/// A unit costs some microseconds before its first key and after its last one, so cutting sequences
/// pays only where whole ones would leave half of the processors without work.
bool splits_decode(int64_t num_sequences, const UnitOptions& options) {
  return 2 * num_sequences <= units_that_fill(options);
}

int64_t tile_for(int64_t packed_rows) {
  return packed_rows <= 16 ? 16 : packed_rows <= 64 ? 64 : 128;
}

}  // namespace

int64_t decode_units(int64_t num_sequences, const UnitOptions& options) {
  if (!splits_decode(num_sequences, options)) return num_sequences;
  return std::max(num_sequences, units_that_fill(options));
}

UnitPlan plan_decode(std::span<const PagedSpan> sequences, int64_t num_launched,
                     const UnitOptions& options) {
  check(static_cast<int64_t>(sequences.size()) <= num_launched,
        "no more sequences than the kernels are launched for");
  const int64_t num_units = decode_units(num_launched, options);
  UnitPlan plan;
  plan.tile = tile_for(options.group);
  plan.one_row = true;
  check(options.group <= 128, "query heads that share a key-value head fit into one tile");
  plan.splits = splits_decode(num_launched, options);
  const int64_t chunk = plan.splits ? chunk_for(sequences, num_units) : int64_t{1} << 30;
  plan.chunk_tokens = static_cast<int32_t>(chunk);
  plan.partial_starts.push_back(0);
  plan.merge_starts.push_back(0);
  for (const PagedSpan& sequence : sequences) {
    check(sequence.num_rows == 1, "decode has one row per sequence");
    const auto next =
        static_cast<int32_t>(plan.merge_starts.back() + ceil_div(sequence.num_keys, chunk));
    plan.partial_starts.push_back(next);
    plan.merge_starts.push_back(next);
  }
  plan.partial_starts.resize(num_launched + 1, plan.partial_starts.back());
  plan.merge_starts.resize(num_launched + 1, plan.merge_starts.back());
  for (const size_t s : longest_first(sequences)) {
    for (int64_t c = 0; c < ceil_div(sequences[s].num_keys, chunk); ++c) add_unit(plan, s, 0, c);
  }
  pad(plan, num_units);
  return plan;
}

std::vector<UnitPlan> plan_mixed(std::span<const PagedSpan> sequences, const UnitOptions& options) {
  UnitPlan decode, prefill;
  decode.tile = tile_for(options.group);
  decode.one_row = true;
  prefill.tile = 16;
  int64_t packed_rows = 0, count = 0;
  for (const PagedSpan& sequence : sequences) {
    if (sequence.num_rows == 1) continue;
    packed_rows += sequence.num_rows * options.group;
    ++count;
  }
  if (count > 0) prefill.tile = tile_for(packed_rows / count);
  for (const size_t s : longest_first(sequences)) {
    if (sequences[s].num_rows == 1) {
      add_unit(decode, s, 0, 0);
      continue;
    }
    const int64_t tiles = ceil_div(sequences[s].num_rows * options.group, prefill.tile);
    // The last rows see the most keys: they go first.
    for (int64_t tile = tiles; tile-- > 0;) add_unit(prefill, s, tile, 0);
  }
  std::vector<UnitPlan> plans;
  for (UnitPlan* plan : {&prefill, &decode}) {
    if (plan->sequence_U.empty()) continue;
    plan->chunk_tokens = int32_t{1} << 30;
    pad(*plan, static_cast<int64_t>(plan->sequence_U.size()));
    plans.push_back(std::move(*plan));
  }
  return plans;
}

}  // namespace slime::kernels
