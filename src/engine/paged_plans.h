#pragma once

/// Attention plans of a CPU step's rows, one for each group of layers (engine/cache_groups.h).

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "kernels/cpu/paged_attention.h"

namespace slime::engine {

/// `sequences`: the rows of each of `requests`, of which there is at least one, without pages. The page tables of
/// the requests must stay valid as long as the plans.
std::vector<kernels::PagedPlan> paged_plans(std::span<const Request* const> requests,
                                            std::vector<kernels::PagedSequence> sequences,
                                            int64_t queries_per_head);

}  // namespace slime::engine
