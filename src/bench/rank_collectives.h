#pragma once

/// Sums of small tensors over the GPUs of this machine: through memory that ranks write to directly
/// (kernels/gpu/peer_collectives.h), and through NCCL.

#include <cstdint>
#include <vector>

#include "bench/rank_processes.h"

namespace slime::bench {

struct RankCollectiveOptions {
  std::vector<int64_t> kib = {8, 64, 512, 2048};  // of a rank's tensor, in bfloat16
  int64_t hidden = 4096;  // of the rows that are also added to a residual stream and normed
  RankOptions ranks;
};

/// Prints a JSON line for each size: microseconds of one sum among many in a recording.
void measure_rank_collectives(const RankCollectiveOptions& options);

}  // namespace slime::bench
