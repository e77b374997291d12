#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/cuda/attention/decode_records.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/training/rows_backward.h"
#include "kernels/gpu/latent_pairs.h"

namespace slime::kernels::cuda {
namespace {

/// Rows of whole 16-byte packs, which may lie apart.
bool has_packed_rows(const Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 && is_aligned(tensor) && tensor.stride(1) == 1 &&
         tensor.stride(0) % 8 == 0;
}

bool is_fast(const LatentCall& call) {
  const LatentShape& shape = call.shape;
  return has_latent_attend() &&
         has_latent_kernels(static_cast<int>(shape.rank), static_cast<int>(shape.rotary_dim),
                            static_cast<int>(shape.plain_dim), static_cast<int>(shape.value_dim)) &&
         has_packed_rows(call.query_TE) && has_packed_rows(call.latent_TL) &&
         has_packed_rows(call.rotary_key_TR) && call.expand.scalar_type() == at::kBFloat16 &&
         call.expand.is_contiguous() && is_aligned(call.expand) && is_aligned(call.latent_norm_L);
}

void fast_step(const LatentCall& call, const Tensor& q_TNE) {
  LatentStep step;
  step.query = pointer(call.query_TE);
  step.latent = pointer(call.latent_TL);
  step.rotary_key = pointer(call.rotary_key_TR);
  step.query_stride = call.query_TE.stride(0);
  step.latent_stride = call.latent_TL.stride(0);
  step.rotary_stride = call.rotary_key_TR.stride(0);
  step.positions_T = array<int64_t>(call.rotary_row_T);
  step.slot_T = array<int32_t>(call.batch->slot_T);
  step.latent_norm_L = pointer(call.latent_norm_L);
  step.expand = pointer(call.expand);
  step.cos_PR = array<float>(call.cos_PR);
  step.sin_PR = array<float>(call.sin_PR);
  step.rotates_pairs = call.rotary_order_R.defined();
  step.eps = static_cast<float>(call.norm_eps);
  step.rows = call.rows.data_ptr();
  step.q_TNE = q_TNE.data_ptr();
  step.num_rows = q_TNE.size(0);
  step.num_heads = static_cast<int>(call.shape.num_heads);
  step.plain_dim = static_cast<int>(call.shape.plain_dim);
  step.value_dim = static_cast<int>(call.shape.value_dim);
  latent_step(step, stream_of(q_TNE));
}

/// The same from single operations, for any size and precision.
void plain_step(const Device& device, const LatentCall& call, const Tensor& q_TNE) {
  const LatentShape& shape = call.shape;
  const int64_t tokens = q_TNE.size(0), heads = shape.num_heads, rotary = shape.rotary_dim,
                plain = shape.plain_dim;
  const auto flat = [&](const Tensor& x) { return x.reshape({tokens, -1}); };
  const auto ordered = [&](const Tensor& x) {
    return call.rotary_order_R.defined() ? x.index_select(x.dim() - 1, call.rotary_order_R) : x;
  };
  const Tensor latent_TL =
      device.rms_norm(call.latent_TL.contiguous(), call.latent_norm_L, call.norm_eps);
  const Tensor query_TND = call.query_TE.reshape({tokens, heads, plain + rotary});
  const Tensor key_TR = ordered(call.rotary_key_TR);
  // All rotating numbers as heads of their own; the value head is not looked at.
  const Tensor rotated_TE = device.norm_rotate(
      at::cat({flat(ordered(query_TND.narrow(2, plain, rotary))), key_TR, key_TR}, 1),
      call.rotary_row_T, {}, {}, call.cos_PR, call.sin_PR, {heads, 1, rotary, 0});
  q_TNE.narrow(2, 0, rotary)
      .copy_(rotated_TE.narrow(1, 0, heads * rotary).view({tokens, heads, rotary}));
  const Tensor keys_NPL =
      call.expand.view({heads, plain + shape.value_dim, shape.rank}).narrow(1, 0, plain);
  q_TNE.narrow(2, rotary, shape.rank)
      .copy_(at::bmm(query_TND.narrow(2, 0, plain).transpose(0, 1), keys_NPL).transpose(0, 1));
  call.rows.view({-1, shape.row_size()})
      .index_copy_(0, call.batch->slot_T.to(at::kLong),
                   at::cat({rotated_TE.narrow(1, heads * rotary, rotary), latent_TL}, 1));
}

/// Of each head what does not rotate, [T, N, P].
Tensor plain_queries(const LatentCall& call) {
  const LatentShape& shape = call.shape;
  return call.query_TE
      .reshape({call.query_TE.size(0), shape.num_heads, shape.plain_dim + shape.rotary_dim})
      .narrow(2, 0, shape.plain_dim);
}

/// Each row at the tokens that were chosen for it.
void attend_chosen(const LatentCall& call, LatentAttend attend, LatentValues values) {
  const Tensor& chosen_TC = call.chosen_TC;
  const cudaStream_t stream = stream_of(chosen_TC);
  const int64_t rows = attend.num_rows, heads = attend.num_heads;
  check(chosen_TC.size(0) == rows && chosen_TC.is_contiguous(), "each row has chosen tokens");
  const int64_t units = units_of_chosen(rows, heads, chosen_TC.size(1), num_processors());
  attend.chosen = values.chosen = {array<int32_t>(chosen_TC), attend.positions_T,
                                   static_cast<int>(chosen_TC.size(1)), static_cast<int>(units)};
  const int64_t records = units > 1 ? rows * units : 0;
  const auto floats = chosen_TC.options().dtype(at::kFloat);
  const Tensor sums = at::empty({records, heads, kLatentRank}, floats),
               weights = at::empty({records, heads, 2}, floats);
  DecodeArrays plan;
  plan.record_sums = sums.data_ptr<float>();
  plan.record_weights = reinterpret_cast<float2*>(weights.data_ptr<float>());
  attend_latent_chosen(attend, plan, stream);
  if (units > 1) {
    if (rows <= kMostMergedRows && call.pairs.empty()) {
      values.plan = &plan;
    } else {
      merge_latent_records(attend, plan, stream);
    }
  }
  latent_values(values, stream);
}

Tensor plain_values(const LatentCall& call, const Tensor& out_TNL) {
  const LatentShape& shape = call.shape;
  const Tensor values_NVL =
      call.expand.view({shape.num_heads, shape.plain_dim + shape.value_dim, shape.rank})
          .narrow(1, shape.plain_dim, shape.value_dim);
  return at::bmm(out_TNL.transpose(0, 1), values_NVL.transpose(1, 2))
      .transpose(0, 1)
      .reshape({out_TNL.size(0), shape.num_heads * shape.value_dim});
}

/// Keys and values of all heads, [C, N (P + R) + N V], of these tokens.
Tensor expanded_keys(const Device& device, const LatentCall& call, const Tensor& pages_P) {
  const LatentShape& shape = call.shape;
  const int64_t heads = shape.num_heads, rotary = shape.rotary_dim, plain = shape.plain_dim,
                size = plain + rotary, count = pages_P.size(0) * kPageTokens;
  // What lies behind the last token of a sequence is multiplied too, and must be numbers.
  const Tensor rows_CE = call.rows.view({call.rows.size(0), -1})
                             .index_select(0, pages_P)
                             .view({count, shape.row_size()})
                             .nan_to_num_(0, 0, 0);
  const Tensor latent_CL = rows_CE.narrow(1, rotary, shape.rank).contiguous();
  const Tensor expanded_CNE =
      device.linear(latent_CL, call.expand, {}).view({count, heads, plain + shape.value_dim});
  add_expanded_latents_(call.pairs, latent_CL, expanded_CNE);
  const Tensor keys_CX = at::empty({count, heads * (size + shape.value_dim)}, rows_CE.options());
  const Tensor keys_CND = keys_CX.narrow(1, 0, heads * size).view({count, heads, size});
  keys_CND.narrow(2, 0, plain).copy_(expanded_CNE.narrow(2, 0, plain));
  keys_CND.narrow(2, plain, rotary).copy_(rows_CE.narrow(1, 0, rotary).unsqueeze(1));
  keys_CX.narrow(1, heads * size, heads * shape.value_dim)
      .view({count, heads, shape.value_dim})
      .copy_(expanded_CNE.narrow(2, plain, shape.value_dim));
  return keys_CX;
}

}  // namespace

void CudaGpu::expanded_prompts(const LatentCall& call, const Tensor& q_TNE,
                               const Tensor& y_TC) const {
  const LatentShape& shape = call.shape;
  const PackedLaunch& launch = call.batch->packed;
  const int64_t rows = q_TNE.size(0), heads = shape.num_heads, plain = shape.plain_dim,
                size = plain + shape.rotary_dim;
  const Tensor keys_CX = expanded_keys(device_, call, launch.earlier_pages);
  const Tensor query_TND =
      call.query_TE.clone(at::MemoryFormat::Contiguous).view({rows, heads, size});
  query_TND.narrow(2, plain, shape.rotary_dim).copy_(q_TNE.narrow(2, 0, shape.rotary_dim));
  const Tensor query_TX = query_TND.view({rows, heads * size});
  const RotaryShape packed_heads{heads, heads, size, 0};
  attend_packed(launch, {keys_CX, keys_CX}, query_TX, packed_heads, call.scale, y_TC);
}

bool CudaGpu::has_latent_units(int64_t row_size, at::ScalarType type) const {
  return has_latent_attend() && type == at::kBFloat16 && row_size == kLatentRow;
}

Tensor CudaGpu::latent_attention(const LatentCall& call) const {
  const LatentShape& shape = call.shape;
  const PagedBatch& batch = *call.batch;
  const cudaStream_t stream = stream_of(call.query_TE);
  const int64_t rows = call.query_TE.size(0);
  const auto options = call.query_TE.options();
  check(call.rows.scalar_type() == call.query_TE.scalar_type() && call.rows.is_contiguous(),
        "latents in the cache are in the precision of the rows");
  const bool fast = is_fast(call);
  check(fast || !call.chosen_TC.defined(), "plain latent attention looks at all tokens");
  const Tensor q_TNE = at::empty({rows, shape.num_heads, shape.row_size()}, options),
               out_TNL = at::empty({rows, shape.num_heads, shape.rank}, options);
  fast ? fast_step(call, q_TNE) : plain_step(device_, call, q_TNE);
  add_latent_queries_(call.pairs, plain_queries(call), q_TNE);

  LatentAttend attend;
  attend.number = number_of(q_TNE);
  attend.q_TNE = pointer(q_TNE);
  attend.rows = pointer(call.rows);
  attend.paged.query_starts = array<int32_t>(batch.query_starts);
  attend.paged.page_starts = array<int32_t>(batch.page_starts);
  attend.paged.pages = array<int32_t>(batch.pages);
  attend.positions_T = array<int64_t>(batch.index_T);
  attend.row_sequence_T = array<int32_t>(batch.row_sequence_T);
  attend.out_TNL = out_TNL.data_ptr();
  attend.num_rows = rows;
  attend.num_heads = static_cast<int>(shape.num_heads);
  attend.rank = static_cast<int>(shape.rank);
  attend.rotary_dim = static_cast<int>(shape.rotary_dim);
  attend.scale = static_cast<float>(call.scale);
  if (!fast) {
    attend_latent_plain(attend, stream);
    Tensor plain_TC = plain_values(call, out_TNL);
    add_latent_values_(call.pairs, out_TNL, plain_TC);
    return plain_TC;
  }
  LatentValues values;
  values.x_TNL = pointer(out_TNL);
  values.expand = pointer(call.expand);
  Tensor y_TC = at::empty({rows, shape.num_heads * shape.value_dim}, options);
  values.y_TC = y_TC.data_ptr();
  values.num_rows = rows;
  values.num_heads = attend.num_heads;
  values.plain_dim = static_cast<int>(shape.plain_dim);
  values.value_dim = static_cast<int>(shape.value_dim);
  if (call.chosen_TC.defined()) {
    attend_chosen(call, attend, values);
    add_latent_values_(call.pairs, out_TNL, y_TC);
    return y_TC;
  }
  const DecodeLaunch& launch = batch.decode;
  if (launch.num_units == 0) {
    const bool has_prompts = !batch.packed.own.pairs.empty();
    check(batch.tiles.size() <= 1, "rows of latent attention are one launch");
    if (!batch.tiles.empty()) {
      attend.unit_sequence_U = array<int32_t>(batch.tiles[0].unit_sequence_U);
      attend.unit_tile_U = array<int32_t>(batch.tiles[0].unit_tile_U);
      attend.num_units = batch.tiles[0].num_units;
    }
    if (!batch.tiles.empty() || !has_prompts) {
      attend_latent_rows(attend, stream);
      latent_values(values, stream);
      add_latent_values_(call.pairs, out_TNL, y_TC);
    }
    if (has_prompts) expanded_prompts(call, q_TNE, y_TC);
    return y_TC;
  }
  const DecodeRecords records(launch, shape.num_heads, shape.rank);
  attend_latent_units(attend, records.plan, stream);
  if (rows <= kMostMergedRows && call.pairs.empty()) {
    values.plan = &records.plan;
  } else {
    merge_latent_records(attend, records.plan, stream);
  }
  latent_values(values, stream);
  add_latent_values_(call.pairs, out_TNL, y_TC);
  return y_TC;
}

}  // namespace slime::kernels::cuda
