#include "model/layers/vocabulary_parallel.h"

#include <ATen/ATen.h>

#include "core/divide_up.h"
#include "kernels/device.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"

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

kernels::LogProbs log_probs(const Tensor& hidden_RH, const kernels::MatrixParam& head_VH,
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

Tensor logits(const Tensor& hidden_RH, const kernels::MatrixParam& head_VH, const Slice& ids,
              int64_t vocab_size, double cap, const TensorParallel& tp) {
  const Tensor own_RV = kernels::logits(hidden_RH, head_VH);
  if (cap > 0) kernels::kernels_for(own_RV).soft_cap_(own_RV, cap);
  if (tp.is_alone()) return own_RV;
  const auto* peers = dynamic_cast<const kernels::RankCollectives*>(&tp.ranks);
  if (peers != nullptr && peers->has_gather_columns(own_RV))
    return peers->gather_columns(own_RV, vocab_size);
  // The last rank may have fewer ids; shares are of one size all the same.
  const int64_t rows = own_RV.size(0), ranks = tp.ranks.size(), room = divide_up(vocab_size, ranks);
  const Tensor all_PRV = at::empty({ranks, rows, room}, own_RV.options());
  all_PRV[tp.ranks.rank()].narrow(1, 0, ids.end - ids.begin).copy_(own_RV);
  std::vector<comm::Range> shards;
  for (int64_t rank = 0; rank < ranks; ++rank)
    shards.push_back({rank * rows * room, (rank + 1) * rows * room});
  tp.ranks.all_gather_(all_PRV.view({-1}), shards, "logits over the vocabulary");
  return all_PRV.transpose(0, 1)
      .reshape({rows, ranks * room})
      .narrow(1, 0, vocab_size)
      .contiguous();
}

}  // namespace slime::model
