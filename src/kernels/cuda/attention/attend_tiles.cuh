#pragma once

/// One instance of FlashInfer's paged prefill kernel per precision of rows (T) and of pages (Kv)
/// and head size; each is a translation unit of its own (attend_tiles_*.cu), because it takes the
/// compiler twenty seconds.

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/tile_scores.cuh"

namespace slime::kernels::cuda {

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
