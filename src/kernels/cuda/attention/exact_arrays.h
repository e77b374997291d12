#pragma once

/// A launch of attention in training arithmetic as its kernel takes it.

#include "kernels/cuda/attention/attention.h"
#include "kernels/gpu/exact_units.h"

namespace slime::kernels::cuda {

static_assert(kExactTileKeys == kernels::kExactKeyTile);

/// `entries`: int32, all tables. Where they lead is left to the caller.
inline ExactArrays exact_arrays(const kernels::ExactLaunch& launch, const Tensor& entries) {
  const auto list = [](const Tensor& x) { return x.const_data_ptr<int32_t>(); };
  ExactArrays arrays;
  arrays.tile = launch.tile;
  arrays.num_runs = launch.num_runs;
  arrays.num_units = launch.num_units;
  arrays.first_row_R = list(launch.first_row_R);
  arrays.num_rows_R = list(launch.num_rows_R);
  arrays.num_keys_R = list(launch.num_keys_R);
  arrays.entry_starts = list(launch.entry_starts);
  arrays.run_U = list(launch.run_U);
  arrays.tile_U = list(launch.tile_U);
  arrays.zero_U = list(launch.zero_U);
  arrays.most_keys = list(launch.most_keys);
  arrays.entries = list(entries);
  return arrays;
}

}  // namespace slime::kernels::cuda
