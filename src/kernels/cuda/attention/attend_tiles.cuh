#pragma once

/// One instance of FlashInfer's paged prefill kernel per precision of rows (T) and of pages (Kv)
/// and head size; each is a translation unit of its own (attend_tiles_*.cu), because it takes the
/// compiler twenty seconds.

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

#include "kernels/cuda/attention/attention.h"

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

template <typename T, typename Kv, int kHeadDim>
void attend_tiles_of(const AttendCall& call, const UnitArrays& units, cudaStream_t stream) {
  using Params = flashinfer::BatchPrefillPagedParams<T, Kv, T, int32_t>;
  const auto mutable_ints = [](const int32_t* pointer) { return const_cast<int32_t*>(pointer); };
  const auto mutable_numbers = [](const void* pointer) {
    return static_cast<Kv*>(const_cast<void*>(pointer));
  };
  const flashinfer::paged_kv_t<Kv, int32_t> paged(
      call.num_kv_heads, kPageTokens, kHeadDim, call.paged.num_sequences,
      flashinfer::QKVLayout::kHND, mutable_numbers(call.paged.keys),
      mutable_numbers(call.paged.values), mutable_ints(call.paged.pages),
      mutable_ints(call.paged.page_starts), mutable_ints(call.paged.last_page_tokens));
  Params params(static_cast<T*>(call.q), paged, /*maybe_custom_mask=*/nullptr,
                mutable_ints(call.paged.query_starts), /*maybe_mask_indptr=*/nullptr,
                /*maybe_q_rope_offset=*/nullptr, static_cast<T*>(call.out_TC), units.logsumexp_TN,
                /*maybe_alibi_slopes=*/nullptr, call.num_heads,
                static_cast<int32_t>(call.row_stride), kHeadDim,
                call.window > 0 ? static_cast<int32_t>(call.window - 1) : -1,
                /*logits_soft_cap=*/call.cap, call.scale, /*rope_scale=*/1.0F, /*rope_theta=*/1e4F);
  params.request_indices = mutable_ints(units.sequence_U);
  params.qo_tile_indices = mutable_ints(units.tile_U);
  params.kv_tile_indices = mutable_ints(units.chunk_U);
  params.kv_chunk_size_ptr = mutable_ints(units.chunk_tokens);
  params.o_indptr =
      mutable_ints(units.partial_out == nullptr ? call.paged.query_starts : units.partial_starts);
  params.merge_indptr = mutable_ints(units.merge_starts);
  params.block_valid_mask = reinterpret_cast<bool*>(const_cast<uint8_t*>(units.is_on_U));
  params.total_num_rows = reinterpret_cast<uint32_t*>(const_cast<int32_t*>(units.num_rows));
  params.max_total_num_rows = static_cast<uint32_t>(call.rows);
  params.padded_batch_size = static_cast<uint32_t>(units.num_units);
  const auto run = [&](auto tile) {
    constexpr uint32_t kTile = decltype(tile)::value;
    check_cuda(
        flashinfer::BatchPrefillWithPagedKVCacheDispatched<
            /*SAME_KV_STRIDES=*/true, kTile, kHeadDim, kHeadDim, flashinfer::PosEncodingMode::kNone,
            /*USE_FP16_QK_REDUCTION=*/false, flashinfer::MaskMode::kCausal, TileScores, Params>(
            params, static_cast<T*>(units.partial_out), units.partial_logsumexp,
            /*enable_pdl=*/true, stream),
        "attention");
  };
  switch (units.tile) {
    case 16:
      return run(std::integral_constant<uint32_t, 16>());
    case 64:
      return run(std::integral_constant<uint32_t, 64>());
    case 128:
      // The accumulators of wider heads would not fit into registers.
      if constexpr (kHeadDim <= 128) return run(std::integral_constant<uint32_t, 128>());
      [[fallthrough]];
    default:
      throw std::runtime_error("attention tiles have 16, 64 or, with heads of up to 128, 128 rows");
  }
}

}  // namespace slime::kernels::cuda
