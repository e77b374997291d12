#pragma once

/// Plans of attention in training arithmetic, made on the host: runs of query rows, and the tiles that the kernel
/// gets. For the engine's chunks over pages and for the trainer's segments over packed rows.
///
/// A run is rows of a sequence whose positions have the same quotient by kExactKeyTile. Keys come in tiles of so many,
/// counted from position 0, so all rows of a run see the same number of tiles: which other rows are in the chunk
/// changes nothing for a row (docs/decisions/0168-training-arithmetic.md).
///
///   a chunk of positions 50 .. 139:    runs 50 .. 63, 64 .. 127, 128 .. 139, of 1, 2 and 3 tiles of keys
///
/// Dimensions: R runs, U units (tiles of query rows times the query heads that share a key-value head).

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/segments.h"

namespace slime::kernels {

inline constexpr int64_t kExactKeyTile = 64;

/// Query rows times heads of a unit: a function of the shape alone. `most_tile`: most_tile_rows() of the head size
/// (kernels/gpu/paged_units.h). `group`: query heads per key-value head.
int64_t exact_tile(int64_t most_tile, int64_t group);

/// New rows of a sequence, which lie together, behind the keys of earlier ones.
struct ExactSequence {
  int64_t first_row = 0, num_rows = 0;
  int64_t num_keys = 0;     // those of the new rows included
  int64_t first_entry = 0;  // of its table (pages or rows) in the list of all tables

  bool operator==(const ExactSequence&) const = default;
};

struct ExactPlan {
  int64_t tile = 0;
  std::vector<int32_t> first_row_R, num_rows_R, num_keys_R;
  std::vector<int32_t> entry_starts;  // [R + 1] tables of runs; the last: entries of all tables
  std::vector<int32_t> run_U,
      tile_U;  // tile_U counts within the run; runs with the most keys first
};

/// `num_entries`: of all tables together.
ExactPlan plan_exact(std::span<const ExactSequence> sequences, int64_t num_entries, int64_t group,
                     int64_t tile);

/// A plan on the device.
struct ExactLaunch {
  int64_t tile = 0, num_runs = 0;
  int64_t num_units = 0;                                                    // 0: no launch
  Tensor first_row_R, num_rows_R, num_keys_R, entry_starts, run_U, tile_U;  // int32
  Tensor zero_U;     // int32: which part of the keys a unit sees, of one
  Tensor most_keys;  // int32 [1]: of a part
};

/// `add` brings a list of int32 to the device, as a tensor.
template <typename Add>
ExactLaunch exact_launch(const ExactPlan& plan, const Add& add) {
  constexpr int32_t kAllKeys = 1 << 30;
  ExactLaunch launch;
  launch.tile = plan.tile;
  launch.num_runs = static_cast<int64_t>(plan.first_row_R.size());
  launch.num_units = static_cast<int64_t>(plan.run_U.size());
  launch.first_row_R = add(plan.first_row_R);
  launch.num_rows_R = add(plan.num_rows_R);
  launch.num_keys_R = add(plan.num_keys_R);
  launch.entry_starts = add(plan.entry_starts);
  launch.run_U = add(plan.run_U);
  launch.tile_U = add(plan.tile_U);
  launch.zero_U = add(std::vector<int32_t>(plan.run_U.size(), 0));
  launch.most_keys = add(std::vector<int32_t>{kAllKeys});
  return launch;
}

/// Tables of rows of keys, one for each segment with queries: its ancestors' rows and its own, in their order.
struct ExactTree {
  std::vector<int32_t> rows;  // the tables, one after another
  std::vector<ExactSequence> sequences;
};

ExactTree exact_tree(const std::vector<Segment>& segments);

}  // namespace slime::kernels
