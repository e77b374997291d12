#include "kernels/gpu/packed_prompts.h"

#include "core/divide_up.h"
#include "kernels/page.h"

namespace slime::kernels {

PackedPlan plan_packed(std::span<PagedSpan> sequences) {
  PackedPlan plan;
  plan.own.causal = true;
  int64_t row = 0, num_gathered = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    PagedSpan& span = sequences[s];
    const int64_t begin = row, end = row += span.num_rows;
    const int64_t earlier = span.num_keys - span.num_rows;
    const int64_t pages = divide_up(earlier, kPageTokens);
    if (span.num_rows < kLeastPackedRows || num_gathered + pages * kPageTokens > kMostGatheredRows)
      continue;
    span.is_packed = true;
    plan.own.pairs.push_back({begin, end, begin, end});
    if (earlier == 0) continue;
    plan.earlier.pairs.push_back({begin, end, num_gathered, num_gathered + earlier});
    plan.contexts.push_back({static_cast<int64_t>(s), pages});
    num_gathered += pages * kPageTokens;
  }
  return plan;
}

}  // namespace slime::kernels
