#pragma once

/// A plan of decode attention as its kernels take it, with the scratch for partial results.

#include "core/tensor.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels::cuda {

struct DecodeRecords {
  /// `size`: of a head's partial result.
  DecodeRecords(const DecodeLaunch& launch, int64_t num_heads, int64_t size);

  Tensor sums, weights;  // float32 [records, N, size], [records, N, 2]
  DecodeArrays plan;     // points into them and into the launch
};

}  // namespace slime::kernels::cuda
