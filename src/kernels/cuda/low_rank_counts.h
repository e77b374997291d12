#pragma once

/// Counters in device memory, by which thread blocks of a kernel wait for each other (LowRankAddition::made).

#include <cuda_runtime.h>

#include "kernels/adapters.h"

namespace slime::kernels::cuda {

/// Counters of a network, the same at every call, since its passes come one after the other. Null where `stream` is
/// being recorded and there are none yet, or where there have been too many networks. May be called from any thread.
unsigned* low_rank_counts(const AdapterRows& network, cudaStream_t stream);

}  // namespace slime::kernels::cuda
