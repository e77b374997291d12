#include "kernels/gpu/exact_units.h"

#include <algorithm>
#include <numeric>

#include "core/divide_up.h"
#include "core/error.h"

namespace slime::kernels {
namespace {

int32_t exact_index(int64_t x) {
  check(x >= 0 && x <= INT32_MAX, "rows and tables of a step are counted in 31 bits");
  return static_cast<int32_t>(x);
}

void add_exact_runs(ExactPlan& plan, const ExactSequence& sequence) {
  const int64_t first_position = sequence.num_keys - sequence.num_rows;
  for (int64_t done = 0; done < sequence.num_rows;) {
    const int64_t position = first_position + done;
    const int64_t end = std::min((position / kExactKeyTile + 1) * kExactKeyTile, sequence.num_keys);
    plan.first_row_R.push_back(exact_index(sequence.first_row + done));
    plan.num_rows_R.push_back(exact_index(end - position));
    plan.num_keys_R.push_back(exact_index(end));
    plan.entry_starts.push_back(exact_index(sequence.first_entry));
    done += end - position;
  }
}

}  // namespace

/// A run has at most 64 rows: one head alone would leave half of a larger tile empty.
int64_t exact_tile(int64_t most_tile, int64_t group) {
  return group == 1 ? kExactKeyTile : most_tile;
}

ExactPlan plan_exact(std::span<const ExactSequence> sequences, int64_t num_entries, int64_t group,
                     int64_t tile) {
  ExactPlan plan;
  plan.tile = tile;
  for (const ExactSequence& sequence : sequences) add_exact_runs(plan, sequence);
  plan.entry_starts.push_back(exact_index(num_entries));
  std::vector<std::size_t> order(plan.first_row_R.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t run) { return plan.num_keys_R[run]; });
  for (const std::size_t run : order) {
    const int64_t tiles = divide_up(plan.num_rows_R[run] * group, tile);
    for (int64_t i = 0; i < tiles; ++i) {
      plan.run_U.push_back(exact_index(static_cast<int64_t>(run)));
      plan.tile_U.push_back(exact_index(i));
    }
  }
  return plan;
}

ExactTree exact_tree(const std::vector<Segment>& segments) {
  ExactTree tree;
  std::vector<int64_t> ends;  // positions of a segment's end, counted from the root of its chain
  std::vector<std::size_t> chain;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const int64_t before = segment.parent < 0 ? 0 : ends[static_cast<std::size_t>(segment.parent)];
    ends.push_back(before + segment.end - segment.begin);
    if (!segment.has_queries) continue;
    chain.clear();
    for (auto at = static_cast<int32_t>(i); at >= 0;
         at = segments[static_cast<std::size_t>(at)].parent)
      chain.push_back(static_cast<std::size_t>(at));
    tree.sequences.push_back({segment.begin, segment.end - segment.begin, ends.back(),
                              static_cast<int64_t>(tree.rows.size())});
    for (std::size_t n = chain.size(); n-- > 0;)
      for (int64_t row = segments[chain[n]].begin; row < segments[chain[n]].end; ++row)
        tree.rows.push_back(exact_index(row));
  }
  return tree;
}

}  // namespace slime::kernels
