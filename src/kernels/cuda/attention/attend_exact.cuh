#pragma once

/// FlashInfer's paged prefill kernel in training arithmetic, for one head size: a tile of queries for each ratio of
/// heads, kExactTileKeys keys at once, keys not split. Each head size is a translation unit of its own
/// (attend_exact_*.cu).
///
/// Not by FlashInfer's launcher, which takes as many keys a tile as the device has shared memory for.

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/tile_scores.cuh"

namespace slime::kernels::cuda {

/// Runs have lengths of their own; their tables begin with those of other runs.
template <typename T>
struct ExactParams : flashinfer::BatchPrefillPagedParams<T, T, T, int32_t> {
  using flashinfer::BatchPrefillPagedParams<T, T, T, int32_t>::BatchPrefillPagedParams;

  const int32_t* num_rows_R = nullptr;
  const int32_t* num_keys_R = nullptr;

  __host__ __device__ uint32_t get_qo_len(uint32_t run) const { return num_rows_R[run]; }
  __host__ __device__ uint32_t get_kv_len(uint32_t run) const { return num_keys_R[run]; }
};

template <typename T, int kHeadDim, int kTile>
void attend_exact_with(const ExactParams<T>& params, cudaStream_t stream) {
  constexpr uint32_t kQueryMmas = flashinfer::get_num_mma_q(kTile);
  constexpr uint32_t kQueryWarps = flashinfer::get_num_warps_q(kTile);
  constexpr uint32_t kKeyWarps = flashinfer::get_num_warps_kv(kTile);
  constexpr uint32_t kKeyMmas = kExactTileKeys / 16 / kKeyWarps;
  using Traits =
      flashinfer::KernelTraits<flashinfer::MaskMode::kCausal, kTile, kQueryMmas, kKeyMmas,
                               kHeadDim / 16, kHeadDim / 16, kQueryWarps, kKeyWarps,
                               flashinfer::PosEncodingMode::kNone, T, T, T, float, int32_t,
                               TileScores, flashinfer::kPrefillLauncherRepacksFp4>;
  static_assert(!Traits::IsInvalid() && Traits::CTA_TILE_KV == kExactTileKeys);
  constexpr auto kKernel = flashinfer::BatchPrefillWithPagedKVCacheKernel</*SAME_KV_STRIDES=*/true,
                                                                          Traits, ExactParams<T>>;
  constexpr int kSharedBytes = sizeof(typename Traits::SharedStoragePaged);
  allow_shared_memory<kKernel>(kSharedBytes);
  launch(kKernel, dim3(params.padded_batch_size, 1, params.paged_kv.num_heads),
         dim3(32, kQueryWarps, kKeyWarps), kSharedBytes, stream, params);
}

template <typename T, int kHeadDim>
void attend_exact_of(const AttendCall& call, const ExactArrays& plan, float* logsumexp_TN,
                     cudaStream_t stream) {
  const auto ints = [](const int32_t* pointer) { return const_cast<int32_t*>(pointer); };
  const auto numbers = [](const void* pointer) {
    return static_cast<T*>(const_cast<void*>(pointer));
  };
  const int64_t strides[3] = {plan.entry_stride, plan.head_stride, plan.token_stride};
  // FlashInfer reads lengths of tables for tokens of the last page where it asks the batch, which it does not here.
  const flashinfer::paged_kv_t<T, int32_t> paged(
      call.num_kv_heads, static_cast<uint32_t>(plan.entry_tokens), kHeadDim,
      static_cast<uint32_t>(plan.num_runs), flashinfer::QKVLayout::kHND, numbers(call.paged.keys),
      numbers(call.paged.values), strides, ints(plan.entries), ints(plan.entry_starts),
      /*last_page_len=*/nullptr);
  ExactParams<T> params(static_cast<T*>(call.q), paged, /*maybe_custom_mask=*/nullptr,
                        ints(plan.first_row_R), /*maybe_mask_indptr=*/nullptr,
                        /*maybe_q_rope_offset=*/nullptr, static_cast<T*>(call.out_TC), logsumexp_TN,
                        /*maybe_alibi_slopes=*/nullptr, call.num_heads,
                        static_cast<int32_t>(call.row_stride), kHeadDim, /*window_left=*/-1,
                        /*logits_soft_cap=*/call.cap, call.scale, /*rope_scale=*/1.0F,
                        /*rope_theta=*/1e4F);
  params.num_rows_R = plan.num_rows_R;
  params.num_keys_R = plan.num_keys_R;
  params.request_indices = ints(plan.run_U);
  params.qo_tile_indices = ints(plan.tile_U);
  params.kv_tile_indices = ints(plan.zero_U);
  params.kv_chunk_size_ptr = ints(plan.most_keys);
  params.o_indptr = ints(plan.first_row_R);
  params.padded_batch_size = static_cast<uint32_t>(plan.num_units);
  params.partition_kv = false;
  if constexpr (kHeadDim <= 128) {
    if (plan.tile == 128) return attend_exact_with<T, kHeadDim, 128>(params, stream);
  }
  if (plan.tile != 64) throw std::runtime_error("no tiles of training arithmetic of this size");
  attend_exact_with<T, kHeadDim, 64>(params, stream);
}

}  // namespace slime::kernels::cuda
