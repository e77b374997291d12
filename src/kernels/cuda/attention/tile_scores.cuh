#pragma once

/// FlashInfer's prefill kernels as we compile them: scores with a cap that calls without one do not pay for.

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/fastdiv.cuh>
#include <flashinfer/page.cuh>

#include "kernels/cuda/attention/capped_score.cuh"

namespace flashinfer {

/// FlashInfer's own asks the variant number by number, and a branch in each would cost calls without a cap
/// something. Ours asks once. The macro gives the definition in prefill.cuh another name, and leaves the
/// calls, which have template arguments.
template <typename KTraits, typename Params, typename Score>
__device__ __forceinline__ void logits_transform(
    const Params& /*params*/, const typename KTraits::AttentionVariant& variant,
    uint32_t /*batch_idx*/, uint32_t /*qo_packed_idx_base*/, uint32_t /*kv_idx_base*/,
    uint32_t /*qo_len*/, uint32_t /*kv_len*/, uint32_t /*chunk_end*/,
    const uint_fastdiv& /*group_size*/, Score (*scores)[KTraits::NUM_MMA_KV][8],
    const dim3& /*tid*/, uint32_t /*kv_head_idx*/) {
  if (variant.before_tanh == 0) return;
#pragma unroll
  for (uint32_t q = 0; q < KTraits::NUM_MMA_Q; ++q) {
#pragma unroll
    for (uint32_t kv = 0; kv < KTraits::NUM_MMA_KV; ++kv) {
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i)
        scores[q][kv][i] = slime::kernels::cuda::score_tanh(scores[q][kv][i] * variant.before_tanh);
    }
  }
}

}  // namespace flashinfer

#define logits_transform(...) logits_transform_of_each(__VA_ARGS__)
#include <flashinfer/attention/prefill.cuh>
#undef logits_transform

namespace slime::kernels::cuda {

/// Causal attention with a window, and a cap of the scores where the call has one.
struct TileScores : flashinfer::AttentionVariantBase {
  static constexpr bool use_softmax = true;

  uint32_t qo_len, kv_len, window_left;
  float sm_scale_log2;
  float before_tanh;  // 0: no cap

  template <typename Params>
  __device__ __host__ TileScores(const Params& params, uint32_t batch_idx, uint8_t* /*smem_ptr*/)
      : qo_len(params.get_qo_len(batch_idx)), kv_len(params.get_kv_len(batch_idx)) {
    const float cap = params.logits_soft_cap;
    before_tanh = cap > 0 ? params.sm_scale / cap : 0;
    sm_scale_log2 = (cap > 0 ? cap : params.sm_scale) * flashinfer::math::log2e;
    window_left = params.window_left >= 0 ? params.window_left : kv_len;
  }

  REGISTER_LOGITS_MASK(params, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx,
                       { return kv_idx + qo_len + window_left >= kv_len + qo_idx; })
};

}  // namespace slime::kernels::cuda
