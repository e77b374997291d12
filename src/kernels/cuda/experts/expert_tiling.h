#pragma once

/// Tiling of products of experts (kernels/cuda/experts/expert_product.h) over thread blocks.

#include <algorithm>
#include <cmath>

#include "core/divide_up.h"
#include "kernels/cuda/experts/expert_product.h"

namespace slime::kernels::cuda::experts {

inline constexpr int kTileRows = 128;  // of weights

/// Requested and not received, unless the caller says otherwise: enough to cover the memory's
/// latency, and little enough that x need not wait long behind it.
inline constexpr int kBytesInFlight = 64 << 10;

/// Expected number of visited experts, of a router that chooses all alike.
inline double expected_experts(const ExpertProduct& call) {
  const double missed =
      std::pow(1.0 - static_cast<double>(call.per_token) / call.experts, call.rows);
  return call.experts * (1.0 - missed);
}

/// Units of a tile: as many as leave the fewest of the thread blocks without work in the last round.
inline int choose_tile_units(const ExpertProduct& call, int processors) {
  constexpr int kOfItem = 8;  // what an item costs beside its units
  const int step = call.is_gated ? 8 : 16;
  const int most = std::min(call.is_gated ? kTileRows / 2 : kTileRows, round_up(call.units, step));
  const double experts = expected_experts(call);
  int best = most;
  double best_cost = 1e30;
  for (int units = most; units >= most / 2; units -= step) {
    const double items = experts * divide_up(call.units, units);
    const double cost = std::ceil(items / processors) * (units + kOfItem);
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = units;
  }
  return best;
}

/// Shorter chunks leave room for more stages; what an expert has beyond a chunk reads its weights
/// again, out of the L2 cache. An expert has a visit of a row at most once, so chunks as long as the
/// rows are never cut.
inline int choose_chunk_rows(const ExpertProduct& call) {
  constexpr int kLong = 64, kShort = 32;
  // Three quarters full on average: of random visits a twentieth of the experts has more.
  const bool is_sparse = 4 * call.rows * call.per_token <= 3 * kShort * call.experts;
  return std::min(call.rows, is_sparse ? kShort : kLong);
}

}  // namespace slime::kernels::cuda::experts
