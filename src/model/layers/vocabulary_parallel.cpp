#include "model/layers/vocabulary_parallel.h"

#include <ATen/ATen.h>

#include "kernels/embedding.h"

namespace slime::model {

Tensor embedded(const Tensor& ids_T, const kernels::Param& table_VH, const Slice& ids,
                at::ScalarType activations, const TensorParallel& tp) {
  if (tp.is_alone()) return kernels::embedding(ids_T, table_VH, activations);
  const Tensor elsewhere_T = (ids_T < ids.begin).logical_or(ids_T >= ids.end);
  const Tensor row_T = (ids_T - ids.begin).masked_fill(elsewhere_T, 0);
  const Tensor own_TH =
      kernels::embedding(row_T, table_VH, activations).masked_fill(elsewhere_T.unsqueeze(1), 0);
  return layer_output(own_TH, tp);
}

kernels::LogProbs log_probs(const Tensor& hidden_RH, const kernels::Param& head_VH,
                            const Slice& ids, const Tensor& target_R,
                            const kernels::LinearLogProbOptions& options,
                            const TensorParallel& tp) {
  if (tp.is_alone()) return kernels::linear_logprob(hidden_RH, head_VH, target_R, options);
  constexpr const char* kWhat = "log-probs over the vocabulary";
  kernels::LinearLogProbOptions sliced = options;
  sliced.vocabulary = {
      .begin = ids.begin,
      .sum_ = [&tp](const Tensor& x) { tp.ranks.all_reduce_(x, kWhat); },
      .max_ = [&tp](const Tensor& x) { tp.ranks.all_reduce_(x, kWhat, comm::Reduction::kMax); }};
  return kernels::linear_logprob(sum_gradient(hidden_RH, tp), head_VH, target_R, sliced);
}

}  // namespace slime::model
