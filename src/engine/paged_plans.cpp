#include "engine/paged_plans.h"

#include "core/error.h"
#include "engine/page_tables.h"

namespace slime::engine {

/// One by one, though groups of layers with a window share prefixes in the same places.
std::vector<kernels::PagedPlan> paged_plans(std::span<const Request* const> requests,
                                            std::vector<kernels::PagedSequence> sequences,
                                            int64_t queries_per_head) {
  const std::size_t num_groups = 1 + requests.front()->window_pages.size();
  std::vector<kernels::PagedPlan> plans;
  for (std::size_t group = 0; group < num_groups; ++group) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      check(requests[i]->window_pages.size() + 1 == num_groups,
            "requests have the same page tables");
      sequences[i].pages = table_of(*requests[i], group).data();
    }
    plans.push_back(kernels::make_paged_plan(sequences, queries_per_head));
  }
  return plans;
}

}  // namespace slime::engine
