#pragma once

/// Optimizer shards: the part of a flat buffer whose master weights and moments each data-parallel
/// rank owns (ZeRO-1). Per training step gradients are summed into their owners, the owners update,
/// and the new weights go to everybody:
///
///   buffer of N elements      | shard of rank 0 | shard of rank 1 | ...
///   reduce_scatter_(grad)       sum over ranks    sum over ranks          each at its owner
///   all_gather_(weights)        from rank 0       from rank 1             at all ranks
///
/// Where ranks have divided the experts of a model among themselves, others share an expert's weights than
/// share the rest: the buffer has two parts, each sharded over ranks of its own.

#include <cstdint>
#include <vector>

#include "comm/parallel_layout.h"
#include "comm/rank_group.h"
#include "model/weights.h"

namespace slime::train {

/// One shard for each rank: equal ones that begin at cache lines; the last ones may be shorter, or
/// empty.
std::vector<comm::Range> shards_of(int64_t num_elements, int num_ranks);

/// Elements of a flat buffer, and along which axis the ranks that share them lie.
struct ShardedPart {
  comm::Range elements;
  comm::Axis axis = comm::Axis::kDpCp;
};

/// All weights but those of divided experts; those, where there are any (model::Weights::experts_begin).
std::vector<ShardedPart> sharded_parts(int64_t num_elements, int64_t experts_begin);
std::vector<ShardedPart> sharded_parts(const model::Weights& weights);

/// The shards of a part, as elements of the buffer.
std::vector<comm::Range> shards_of(const ShardedPart& part, int num_ranks);

}  // namespace slime::train
