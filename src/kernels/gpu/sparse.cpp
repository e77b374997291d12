#include "kernels/gpu/sparse.h"

#include <algorithm>

#include "core/divide_up.h"

namespace slime::kernels {
namespace {

constexpr int64_t kHeads = 16, kStageKeys = 32;
constexpr int64_t kMostUnits = 32;
/// What a unit costs that is not its keys, and what each of its records costs the merge, in stages.
constexpr int64_t kUnitCost = 4, kMergeCost = 2, kRecordsOfACost = 8;

}  // namespace

int64_t most_chosen(int64_t count, int64_t most_keys) { return std::min(count, most_keys); }

int64_t score_stride(int64_t most_keys) { return round_up(most_keys, int64_t{4}); }

int64_t units_of_chosen(int64_t num_rows, int64_t num_heads, int64_t most_chosen,
                        int64_t num_processors) {
  const int64_t blocks = num_rows * divide_up(num_heads, kHeads),
                stages = divide_up(most_chosen, kStageKeys);
  const auto cost = [&](int64_t units) {
    return divide_up(blocks * units, num_processors) * (divide_up(stages, units) + kUnitCost) +
           (units > 1 ? kMergeCost + units / kRecordsOfACost : 0);
  };
  int64_t best = 1;
  for (int64_t units = 2; units <= std::min(kMostUnits, stages); ++units)
    if (cost(units) < cost(best)) best = units;
  return best;
}

int64_t sparse_decode_bytes(const SparseDecodeSizes& sizes, int64_t num_processors) {
  constexpr int64_t kNumber = 4;
  const int64_t chosen = most_chosen(sizes.count, sizes.most_keys),
                units = units_of_chosen(sizes.num_rows, sizes.num_heads, chosen, num_processors),
                records = units > 1 ? units * sizes.num_heads * (sizes.rank + 2) : 0;
  return kNumber * sizes.num_rows * (score_stride(sizes.most_keys) + chosen + records);
}

}  // namespace slime::kernels
