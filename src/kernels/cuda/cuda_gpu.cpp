#include "kernels/cuda/cuda_gpu.h"

#include <ATen/ATen.h>
#include <c10/core/AllocatorConfig.h>
#include <fmt/format.h>

#include "core/error.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/decode_records.h"
#include "kernels/cuda/attention/exact_arrays.h"
#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/shared_memory.h"
#include "kernels/cuda/torch_side.h"
#include "kernels/cuda/training/rows_backward.h"
#include "kernels/cuda/virtual_memory.h"
#include "kernels/gpu/paged_units.h"

namespace slime::kernels::cuda {

CudaGpu::CudaGpu(int index) : index_(index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  num_processors_ = properties.multiProcessorCount;
  description_ = fmt::format("{}, {} multiprocessors, driver for CUDA {}.{}", properties.name,
                             properties.multiProcessorCount, driver / 1000, driver % 1000 / 10);
}

int64_t CudaGpu::free_bytes() const {
  const GpuMemoryUse use = memory_use();
  return use.free + use.kept - use.tensors;
}

void CudaGpu::release_unused_memory() { release_cached_memory(); }

std::unique_ptr<GpuMemory> CudaGpu::reserve_memory(int64_t bytes) {
  return std::make_unique<VirtualMemory>(index_, bytes, mapped_bytes_);
}

std::unique_ptr<SharedGpuMemory> CudaGpu::share_memory(int64_t bytes) {
  return std::make_unique<SharedMemory>(index_, bytes, mapped_bytes_);
}

/// Expandable segments have no handles for other processes.
void CudaGpu::make_exportable(const std::function<void()>& body) {
  const bool was_expandable =
      c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
  const auto set = [was_expandable](bool is_expandable) {
    if (!was_expandable) return;
    c10::CachingAllocator::setAllocatorSettings(is_expandable ? "expandable_segments:True"
                                                              : "expandable_segments:False");
  };
  set(false);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { set(true); });
  body();
}

std::string CudaGpu::export_memory(const Tensor& tensor) { return exported_handle(tensor); }

std::unique_ptr<PeerMemory> CudaGpu::open_peer_memory(const std::string& handle) {
  return std::make_unique<IpcPeerMemory>(index_, handle);
}

void CudaGpu::lock_pages(const Tensor& host) const {
  check(host.is_cpu() && host.is_contiguous(), "pages are locked under a tensor on the host");
  check_cuda(cudaHostRegister(host.data_ptr(), host.nbytes(), cudaHostRegisterDefault),
             "locking host memory");
}

void CudaGpu::unlock_pages(const Tensor& host) const {
  check_cuda(cudaHostUnregister(host.data_ptr()), "unlocking host memory");
}

GpuMemoryUse CudaGpu::memory_use() const {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const AllocatorUse allocator = allocator_use(index_);
  GpuMemoryUse use;
  use.total = static_cast<int64_t>(total);
  use.free = static_cast<int64_t>(free);
  use.mapped = mapped_bytes_;
  use.tensors = allocator.tensors;
  use.peak_tensors = allocator.peak_tensors;
  use.kept = allocator.kept;
  use.peak_kept = allocator.peak_kept;
  return use;
}

void CudaGpu::reset_peak_memory() { reset_allocator_peaks(index_); }

void CudaGpu::resolve_ids_(Tensor ids_T, const Tensor& sampled_R) const {
  resolve_ids(ids_T.data_ptr<int64_t>(), sampled_R.const_data_ptr<int32_t>(), ids_T.size(0),
              stream_of(ids_T));
}

bool CudaGpu::has_tiled_attention(const RotaryShape& heads, at::ScalarType type,
                                  at::ScalarType cache) const {
  return (type == at::kBFloat16 || type == at::kHalf) &&
         heads.num_heads / heads.num_kv_heads <= most_tile_rows(heads.head_dim) &&
         has_tiles(type == at::kHalf ? Number::kFloat16 : Number::kBFloat16,
                   static_cast<int>(heads.head_dim), cache == at::kFloat8_e4m3fn);
}

bool CudaGpu::has_decode_attention(const RotaryShape& heads, at::ScalarType type) const {
  return has_tiled_attention(heads, type, type) &&
         has_decode(type == at::kHalf ? Number::kFloat16 : Number::kBFloat16,
                    static_cast<int>(heads.head_dim),
                    static_cast<int>(heads.num_heads / heads.num_kv_heads));
}

bool CudaGpu::has_packed_attention(const RotaryShape& heads, at::ScalarType type) const {
  return PackedAttention::supports(type, heads) && compute_capability_major() >= 9;
}

bool CudaGpu::has_exact_attention(const RotaryShape& heads, at::ScalarType type) const {
  return type == at::kBFloat16 && has_exact(Number::kBFloat16, static_cast<int>(heads.head_dim));
}

/// Plans of engines are coarse: prompts come in all lengths.
PackedAttention& CudaGpu::packed_on(cudaStream_t stream) const {
  return packed_
      .try_emplace(reinterpret_cast<int64_t>(stream),
                   PlanRounding{.row_fractions = 1, .pair_fractions = 1, .least_pairs = 1})
      .first->second;
}

Tensor CudaGpu::attend_packed(const PackedLaunch& launch, const PackedKeys& keys,
                              const Tensor& query_TX, const RotaryShape& heads, double scale,
                              const Tensor& out_TC) const {
  const auto statistics = query_TX.options().dtype(at::kFloat);
  const TreeAttentionShape shape{scale, 0};
  // Rows of other launches keep infinity, and so what they have.
  Tensor logsumexp_TN = at::full({query_TX.size(0), heads.num_heads}, INFINITY, statistics);
  const cudaStream_t stream = stream_of(query_TX);
  const std::lock_guard lock(packed_mutex_);
  PackedAttention& attention = packed_on(stream);
  attention.forward(query_TX, keys.own_CX, launch.own, heads, shape, out_TC, logsumexp_TN);
  if (launch.earlier.pairs.empty()) return logsumexp_TN;
  const Tensor more_TC = at::empty_like(out_TC);
  const Tensor more_TN = at::full_like(logsumexp_TN, -INFINITY);
  attention.forward(query_TX, keys.earlier_CX, launch.earlier, heads, shape, more_TC, more_TN);
  merge_attention(number_of(out_TC), out_TC.data_ptr(), logsumexp_TN.data_ptr<float>(),
                  pointer(more_TC), more_TN.const_data_ptr<float>(), out_TC.size(0),
                  heads.num_heads, out_TC.size(1) / heads.num_heads, stream);
  return logsumexp_TN;
}

void CudaGpu::packed_attention(const PagedCall& call, const AttendCall& attend,
                               const Tensor& out_TC) const {
  const PackedLaunch& launch = call.batch->packed;
  const RotaryShape& heads = call.heads;
  const cudaStream_t stream = stream_of(call.qkv_TE);
  PackedKeys keys;  // the new ones are behind the queries
  if (!launch.earlier.pairs.empty()) {
    GatherCall gather;
    gather.number = number_of(call.qkv_TE);
    gather.pages_P = array<int32_t>(launch.earlier_pages);
    gather.num_pages = launch.earlier_pages.size(0);
    gather.keys = call.keys.const_data_ptr();
    gather.values = call.values.const_data_ptr();
    gather.num_kv_heads = static_cast<int>(heads.num_kv_heads);
    gather.head_dim = static_cast<int>(heads.head_dim);
    gather.is_fp8 = call.keys.scalar_type() == at::kFloat8_e4m3fn;
    keys.earlier_CX =
        at::empty({gather.num_pages * kPageTokens, 2 * heads.num_kv_heads * heads.head_dim},
                  call.qkv_TE.options());
    gather.rows_CX = keys.earlier_CX.data_ptr();
    gather_pages(gather, stream);
  }
  const Tensor logsumexp_TN =
      attend_packed(launch, keys, call.qkv_TE, heads, call.attention.scale, out_TC);
  if (attend.sinks_N != nullptr)
    apply_sinks(attend, logsumexp_TN.const_data_ptr<float>(), false, stream);
}

void CudaGpu::decode_attention(const PagedCall& call, const AttendCall& attend,
                               const RotateCall* rotate) const {
  const DecodeRecords records(call.batch->decode, attend.num_heads, attend.head_dim);
  attend_decode(attend, records.plan, rotate, stream_of(call.qkv_TE));
}

void CudaGpu::exact_attention(const PagedCall& call, const AttendCall& attend) const {
  const PagedBatch& batch = *call.batch;
  check(batch.tiles.empty() && batch.packed.own.pairs.empty() && batch.decode.num_units == 0 &&
            attend.window == 0 && !attend.paged.is_fp8,
        "a step in training arithmetic has no other launches, no windows and plain pages");
  ExactArrays plan = exact_arrays(batch.exact, batch.pages);
  plan.entry_tokens = kPageTokens;
  plan.token_stride = attend.head_dim;
  plan.head_stride = plan.token_stride * kPageTokens;
  plan.entry_stride = plan.head_stride * attend.num_kv_heads;
  const cudaStream_t stream = stream_of(call.qkv_TE);
  Tensor logsumexp_TN;
  if (attend.sinks_N != nullptr)
    logsumexp_TN =
        at::empty({attend.rows, attend.num_heads}, call.qkv_TE.options().dtype(at::kFloat));
  float* to_base_2 = logsumexp_TN.defined() ? logsumexp_TN.data_ptr<float>() : nullptr;
  attend_exact(attend, plan, to_base_2, stream);
  if (to_base_2 != nullptr) apply_sinks(attend, to_base_2, /*is_base_2=*/true, stream);
}

Tensor CudaGpu::paged_attention(const PagedCall& call) const {
  const PagedBatch& batch = *call.batch;
  const RotaryShape& heads = call.heads;
  const cudaStream_t stream = stream_of(call.qkv_TE);
  const int64_t rows = call.qkv_TE.size(0);
  check(call.qkv_TE.is_contiguous(), "the fused projection is contiguous");

  RotateCall rotate;
  rotate.number = number_of(call.qkv_TE);
  rotate.qkv_TE = rotate.out_TE = call.qkv_TE.data_ptr();
  rotate.positions_T = array<int64_t>(call.rotary_row_T);
  rotate.q_norm_D = pointer(call.q_norm_D);
  rotate.k_norm_D = pointer(call.k_norm_D);
  rotate.has_float_norms = are_float_norms(call.qkv_TE, call.q_norm_D);
  check(are_norms_ours(call.qkv_TE, call.q_norm_D, call.k_norm_D),
        "norms of queries and keys are in the precision of the rows or in float32");
  rotate.cos_PR = array<float>(call.cos_PR);
  rotate.sin_PR = array<float>(call.sin_PR);
  rotate.rows = rows;
  rotate.num_heads = static_cast<int>(heads.num_heads);
  rotate.num_kv_heads = static_cast<int>(heads.num_kv_heads);
  rotate.head_dim = static_cast<int>(heads.head_dim);
  rotate.eps = static_cast<float>(heads.norm_eps);
  rotate.slot_T = array<int32_t>(batch.slot_T);
  rotate.keys = call.keys.data_ptr();
  rotate.values = call.values.data_ptr();
  rotate.is_fp8 = call.keys.scalar_type() == at::kFloat8_e4m3fn;
  const bool has_tiles_here =
      has_tiled_attention(heads, call.qkv_TE.scalar_type(), call.keys.scalar_type());
  check(rotate.is_fp8 ? has_tiles_here : call.keys.scalar_type() == call.qkv_TE.scalar_type(),
        "keys and values are in the precision of the rows, or in fp8 where there are tiles");
  // In a step of nothing but decode the attention kernel does it: a launch less. Its thread blocks write keys while
  // others read.
  const bool has_packed = !batch.packed.own.pairs.empty();
  rotate.keeps_keys = has_packed;
  const bool is_decode = batch.tiles.empty() && !has_packed && batch.decode.num_units > 0;
  const bool rotates_first = !is_decode || rotate.has_float_norms || batch.sees_new_keys;
  if (rotates_first) norm_rotate(rotate, stream);

  Tensor out_TC = at::empty({rows, heads.num_heads * heads.head_dim}, call.qkv_TE.options());
  AttendCall attend;
  attend.number = rotate.number;
  attend.paged = {array<int32_t>(batch.query_starts),
                  array<int32_t>(batch.page_starts),
                  array<int32_t>(batch.pages),
                  array<int32_t>(batch.last_page_tokens),
                  call.keys.const_data_ptr(),
                  call.values.const_data_ptr(),
                  static_cast<int>(batch.last_page_tokens.size(0)),
                  rotate.is_fp8};
  attend.q = call.qkv_TE.data_ptr();
  attend.row_stride = call.qkv_TE.size(1);
  attend.out_TC = out_TC.data_ptr();
  attend.rows = rows;
  attend.num_heads = rotate.num_heads;
  attend.num_kv_heads = rotate.num_kv_heads;
  attend.head_dim = rotate.head_dim;
  attend.scale = static_cast<float>(call.attention.scale);
  attend.cap = static_cast<float>(call.attention.cap);
  attend.window = call.attention.window;
  attend.sinks_N = pointer(call.sinks_N);
  const bool has_sinks = call.sinks_N.defined();
  check(!has_sinks || call.sinks_N.scalar_type() == call.qkv_TE.scalar_type(),
        "attention sinks are in the precision of the rows");
  if (batch.exact.num_units > 0) {
    exact_attention(call, attend);
    return out_TC;
  }
  if (!has_tiles_here) {
    check(!is_decode && !has_packed, "decode is planned where has_decode_attention says so");
    const auto run = is_for_attend_rows(attend) ? attend_rows : attend_plain;
    run(attend, array<int64_t>(batch.index_T), array<int32_t>(batch.row_sequence_T), stream);
    return out_TC;
  }
  for (const TileLaunch& launch : batch.tiles) {
    if (!launch.is_for(call.attention.window)) continue;
    UnitArrays units;
    units.tile = static_cast<int>(launch.tile);
    units.num_units = launch.num_units;
    units.sequence_U = array<int32_t>(launch.unit_sequence_U);
    units.tile_U = array<int32_t>(launch.unit_tile_U);
    units.chunk_U = array<int32_t>(launch.unit_chunk_U);
    units.is_on_U = array<uint8_t>(launch.unit_is_on_U);
    units.chunk_tokens = array<int32_t>(launch.chunk_tokens);
    units.num_rows = array<int32_t>(launch.num_rows);
    Tensor partial_out, partial_logsumexp;
    if (launch.num_partials > 0) {
      partial_out =
          at::empty({launch.num_partials, heads.num_heads, heads.head_dim}, out_TC.options());
      partial_logsumexp =
          at::empty({launch.num_partials, heads.num_heads}, out_TC.options().dtype(at::kFloat));
      units.partial_out = partial_out.data_ptr();
      units.partial_logsumexp = partial_logsumexp.data_ptr<float>();
      units.partial_starts = array<int32_t>(launch.partial_starts);
      units.merge_starts = array<int32_t>(launch.merge_starts);
    }
    Tensor logsumexp_TN;
    if (has_sinks) {
      logsumexp_TN =
          at::full({rows, heads.num_heads}, INFINITY, out_TC.options().dtype(at::kFloat));
      units.logsumexp_TN = logsumexp_TN.data_ptr<float>();
    }
    attend_tiles(attend, units, stream);
    if (has_sinks) apply_sinks(attend, units.logsumexp_TN, true, stream);
  }
  if (has_packed) {
    check(call.attention.window == 0 && call.attention.cap == 0,
          "packed prompts are planned where layers have no window and scores no cap");
    packed_attention(call, attend, out_TC);
  }
  if (batch.decode.num_units > 0) decode_attention(call, attend, rotates_first ? nullptr : &rotate);
  return out_TC;
}

void CudaGpu::sample(const Tensor& logits_RV, const SampleRows& rows,
                     const SampledRows& sampled) const {
  SampleCall call;
  call.logits_RV = logits_RV.data_ptr<float>();
  call.rows = logits_RV.size(0);
  call.vocab = logits_RV.size(1);
  check(logits_RV.is_contiguous() && rows.uniform_R.size(0) >= call.rows &&
            sampled.token_R.size(0) >= call.rows &&
            (!rows.extras_R.defined() || sampled.num_kept_R.defined()),
        "every sampled row has its parameters and room for its results");
  const int64_t chunks = sample_chunks(call.vocab);
  const Tensor chunk_max = at::empty({call.rows, chunks}, logits_RV.options());
  const Tensor chunk_sum = at::empty_like(chunk_max);
  const Tensor chunk_argmax = at::empty_like(chunk_max, at::kInt);
  const auto bytes = logits_RV.options().dtype(at::kByte);
  const Tensor measured = at::empty({call.rows, static_cast<int64_t>(sizeof(MeasuredRow))}, bytes);
  const Tensor bucket_mass = at::empty({call.rows, kSampleBuckets}, bytes.dtype(at::kLong));
  const Tensor bucket_count = at::empty_like(bucket_mass, at::kInt);
  call.uniform_R = array<double>(rows.uniform_R);
  call.temperature_R = array<float>(rows.temperature_R);
  call.top_p_R = array<float>(rows.top_p_R);
  call.min_p_R = array<float>(rows.min_p_R);
  call.top_k_R = array<int32_t>(rows.top_k_R);
  call.chunk_max_RC = chunk_max.data_ptr<float>();
  call.chunk_sum_RC = chunk_sum.data_ptr<float>();
  call.chunk_argmax_RC = chunk_argmax.data_ptr<int32_t>();
  call.measured_R = reinterpret_cast<MeasuredRow*>(measured.data_ptr<uint8_t>());
  call.bucket_mass_RB = reinterpret_cast<unsigned long long*>(bucket_mass.data_ptr<int64_t>());
  call.bucket_count_RB = reinterpret_cast<uint32_t*>(bucket_count.data_ptr<int32_t>());
  call.extras_R = static_cast<const RowExtras*>(pointer(rows.extras_R));
  call.token_R = sampled.token_R.data_ptr<int32_t>();
  call.log_prob_R = sampled.log_prob_R.data_ptr<float>();
  if (sampled.num_kept_R.defined()) call.num_kept_R = sampled.num_kept_R.data_ptr<int32_t>();
  cuda::sample(call, stream_of(logits_RV));
}

std::unique_ptr<GpuGraph> CudaGpu::record(const std::function<void()>& body,
                                          const GpuGraph* neighbour, GraphLaunch launch) {
  return record_graph(body, neighbour, launch);
}

}  // namespace slime::kernels::cuda
