#pragma once

/// Which shard of a flat buffer each data-parallel rank owns: it alone keeps master weights and
/// moments of it (ZeRO-1). Per training step gradients are summed into their owners, the owners
/// update, and the new weights go to everybody:
///
///   buffer of N elements      | shard of rank 0 | shard of rank 1 | ...
///   reduce_scatter_(grad)       sum over ranks    sum over ranks          each at its owner
///   all_gather_(weights)        from rank 0       from rank 1             at all ranks

#include <cstdint>
#include <vector>

#include "comm/rank_group.h"

namespace slime::train {

/// One shard for each rank: equal ones that begin at cache lines; the last ones may be shorter, or
/// empty.
std::vector<comm::Range> shards_of(int64_t num_elements, int num_ranks);

}  // namespace slime::train
