#include "kernels/gpu/latent_prompts.h"

#include <algorithm>
#include <tuple>

#include "core/divide_up.h"
#include "kernels/page.h"

namespace slime::kernels {

PackedPlan plan_expanded(std::span<PagedSpan> sequences) {
  PackedPlan plan;
  plan.own.causal = true;
  int64_t row = 0, num_gathered = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    PagedSpan& span = sequences[s];
    const int64_t begin = row, end = row += span.num_rows;
    const int64_t pages = divide_up(span.num_keys, kPageTokens);
    if (span.num_rows < kLeastExpandedRows ||
        num_gathered + pages * kPageTokens > kMostGatheredRows)
      continue;
    span.is_packed = true;
    const int64_t own = num_gathered + span.num_keys - span.num_rows;
    plan.own.pairs.push_back({begin, end, own, own + span.num_rows});
    if (own > num_gathered) plan.earlier.pairs.push_back({begin, end, num_gathered, own});
    plan.contexts.push_back({static_cast<int64_t>(s), pages});
    num_gathered += pages * kPageTokens;
  }
  return plan;
}

UnitPlan plan_absorbed(std::span<const PagedSpan> sequences) {
  std::vector<std::tuple<int64_t, int32_t, int32_t>> units;  // keys it sees, sequence, row in it
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const PagedSpan& span = sequences[s];
    if (span.is_packed) continue;
    for (int64_t row = 0; row < span.num_rows; ++row)
      units.emplace_back(span.num_keys - span.num_rows + row + 1, static_cast<int32_t>(s),
                         static_cast<int32_t>(row));
  }
  std::ranges::stable_sort(
      units, [](const auto& a, const auto& b) { return std::get<0>(a) > std::get<0>(b); });
  UnitPlan plan;
  plan.tile = 1;
  plan.num_units = static_cast<int64_t>(units.size());
  for (const auto& [keys, sequence, row] : units) {
    plan.sequence_U.push_back(sequence);
    plan.tile_U.push_back(row);
    plan.chunk_U.push_back(0);
    plan.is_on_U.push_back(1);
  }
  return plan;
}

}  // namespace slime::kernels
