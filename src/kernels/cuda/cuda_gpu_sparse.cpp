#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/sparse/sparse.h"

namespace slime::kernels::cuda {

bool CudaGpu::has_sparse_decode(const LatentShape& shape, int64_t index_heads, int64_t index_size,
                                at::ScalarType type) const {
  return has_latent_units(shape.row_size(), type) && has_index_kernels(index_heads, index_size) &&
         has_latent_kernels(static_cast<int>(shape.rank), static_cast<int>(shape.rotary_dim),
                            static_cast<int>(shape.plain_dim), static_cast<int>(shape.value_dim));
}

IndexRows CudaGpu::index_rows(const kernels::IndexRowsCall& call) const {
  const int64_t rows = call.query_TE.size(0), heads = call.weight_TJ.size(1);
  for (const Tensor* x : {&call.query_TE, &call.key_TD, &call.norm_D, &call.norm_bias_D})
    check(x->scalar_type() == at::kBFloat16 && x->is_contiguous(),
          "products of an indexer are contiguous bfloat16");
  check(call.weight_TJ.scalar_type() == at::kFloat && call.weight_TJ.is_contiguous() &&
            call.query_TE.size(1) == heads * kIndexSize && call.key_TD.size(1) == kIndexSize &&
            2 * call.cos_PR.size(1) == kLatentRotary,
        "an indexer has heads of 128 numbers, of which 64 rotate");
  const auto floats = call.weight_TJ.options();
  IndexRows out{at::empty({rows, heads, kIndexSize}, floats), at::empty({rows, kIndexSize}, floats),
                at::empty({rows, heads}, floats)};
  IndexRowsCall made;
  made.query_TE = pointer(call.query_TE);
  made.key_TD = pointer(call.key_TD);
  made.weight_TJ = array<float>(call.weight_TJ);
  made.norm_D = pointer(call.norm_D);
  made.norm_bias_D = pointer(call.norm_bias_D);
  made.cos_PR = array<float>(call.cos_PR);
  made.sin_PR = array<float>(call.sin_PR);
  made.positions_T = array<int64_t>(call.rotary_row_T);
  made.made_query_TJD = out.query_TJD.data_ptr<float>();
  made.made_key_TD = out.key_TD.data_ptr<float>();
  made.scaled_weight_TJ = out.weight_TJ.data_ptr<float>();
  made.num_rows = rows;
  made.num_heads = static_cast<int>(heads);
  made.eps = static_cast<float>(call.norm_eps);
  made.rotates_pairs = call.rotates_pairs;
  cuda::index_rows(made, stream_of(call.query_TE));
  return out;
}

Tensor CudaGpu::choose_tokens(const IndexCall& call) const {
  const PagedBatch& batch = *call.batch;
  const int64_t rows = call.key_TD.size(0);
  const cudaStream_t stream = stream_of(call.keys);
  for (const Tensor* x : {&call.query_TJD, &call.key_TD, &call.weight_TJ, &call.keys})
    check(x->scalar_type() == at::kFloat && x->is_contiguous() && is_aligned(*x),
          "an indexer's numbers are contiguous float32");
  const int64_t stride = score_stride(call.most_keys),
                chosen = most_chosen(call.count, call.most_keys);
  const auto integers = call.keys.options().dtype(at::kInt);
  const Tensor score_TK = at::empty({rows, stride}, integers);
  Tensor slot_TC = at::empty({rows, chosen}, integers);
  IndexScores scores;
  scores.query_TJD = array<float>(call.query_TJD);
  scores.key_TD = array<float>(call.key_TD);
  scores.weight_TJ = array<float>(call.weight_TJ);
  scores.keys = call.keys.data_ptr<float>();
  scores.positions_T = array<int64_t>(batch.index_T);
  scores.slot_T = array<int32_t>(batch.slot_T);
  scores.page_starts = array<int32_t>(batch.page_starts);
  scores.pages = array<int32_t>(batch.pages);
  scores.score_TK = reinterpret_cast<uint32_t*>(score_TK.data_ptr<int32_t>());
  scores.num_rows = rows;
  scores.num_heads = static_cast<int>(call.query_TJD.size(1));
  scores.most_keys = stride;
  scores.most_chosen = chosen;
  index_scores(scores, stream);
  ChooseTokens choice;
  choice.score_TK = scores.score_TK;
  choice.positions_T = scores.positions_T;
  choice.page_starts = scores.page_starts;
  choice.pages = scores.pages;
  choice.slot_TC = slot_TC.data_ptr<int32_t>();
  choice.num_rows = rows;
  choice.most_keys = stride;
  choice.most_chosen = chosen;
  cuda::choose_tokens(choice, stream);
  return slot_TC;
}

}  // namespace slime::kernels::cuda
