#pragma once

/// Counters in device memory, by which thread blocks wait for each other (LowRankAddition::made, ready and
/// flags).

#include <cuda_runtime.h>

#include "kernels/adapters.h"

namespace slime::kernels::cuda {

/// Two numbers of a network, whose passes come one after the other, or of one of its matrices, whose products do: the same
/// at every call. Null where `stream` is being recorded and there are none yet, or where there have been too many. May be
/// called from any thread.
unsigned* low_rank_counts(const AdapterRows& network, cudaStream_t stream);
unsigned* low_rank_counts(const MatrixAdapters& matrix, cudaStream_t stream);

/// Flags of a network's products of a batch that make h themselves (LowRankAddition::flags), kMostHiddenFlags of them. Null
/// as above.
unsigned* low_rank_flags(const AdapterRows& network, cudaStream_t stream);

/// Memory of h of a network's products that wait for its numbers themselves (LowRankAddition::is_polled), kLowRankPolled of
/// them. Null as above.
inline constexpr int64_t kLowRankPolled = 4096;
float* low_rank_polled(const AdapterRows& network, cudaStream_t stream);

}  // namespace slime::kernels::cuda
