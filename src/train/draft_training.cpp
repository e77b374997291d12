#include "train/draft_training.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "core/error.h"
#include "kernels/pick_rows.h"
#include "model/tree_attention.h"

namespace slime::train {
namespace {

struct DraftRows {
  model::TokenBatch tokens;  // [D], a segment for each sequence
  Tensor row_D;              // int64: whose hidden state each begins with, of the packed batch
  Tensor counted_P;          // int64: rows whose predictions count
  Tensor target_P;           // int64: what they are to predict
};

Tensor int64s(const std::vector<int64_t>& numbers) { return at::tensor(numbers, at::kLong); }

DraftRows draft_rows_of(const MicroBatch& micro_batch) {
  const PackedBatch& packed = micro_batch.packed;
  check(packed.media.empty(), "draft layers are trained on text");
  const auto* row_L = packed.row_L.const_data_ptr<int64_t>();
  const auto* id_U = packed.tokens.ids_T.const_data_ptr<int64_t>();
  const auto* rotary_row_U = packed.tokens.rotary_row_T.const_data_ptr<int64_t>();
  const auto* start_R = micro_batch.starts.const_data_ptr<int64_t>();
  const auto* trained_T = micro_batch.trained_T.const_data_ptr<bool>();
  DraftRows rows;
  std::vector<int64_t> taken, ids, rotary_rows, counted, targets;
  for (std::size_t q = 0; q < packed.lengths.size(); ++q) {
    const int64_t length = packed.lengths[q], prompt = length - (start_R[q + 1] - start_R[q]);
    const auto first = static_cast<int64_t>(ids.size());
    for (int64_t i = 0; i + 1 < length; ++i) {
      taken.push_back(row_L[i]);
      ids.push_back(id_U[row_L[i + 1]]);
      rotary_rows.push_back(rotary_row_U[row_L[i]]);
    }
    if (length > 1)
      rows.tokens.segments.push_back({.begin = first, .end = first + length - 1, .parent = -1});
    for (int64_t position = std::max(prompt, kFirstPredicted); position < length; ++position) {
      if (!trained_T[start_R[q] + position - prompt]) continue;
      counted.push_back(first + position - 2);
      targets.push_back(id_U[row_L[position]]);
    }
    row_L += length;
  }
  rows.tokens.ids_T = int64s(ids);
  rows.tokens.rotary_row_T = int64s(rotary_rows);
  rows.row_D = int64s(taken);
  rows.counted_P = int64s(counted);
  rows.target_P = int64s(targets);
  return rows;
}

}  // namespace

int64_t num_predictions(const MicroBatch& micro_batch) {
  const auto* start_R = micro_batch.starts.const_data_ptr<int64_t>();
  const auto* trained_T = micro_batch.trained_T.const_data_ptr<bool>();
  int64_t count = 0;
  for (std::size_t q = 0; q < micro_batch.packed.lengths.size(); ++q) {
    const std::span trained(trained_T + start_R[q], trained_T + start_R[q + 1]);
    count += num_predictions(micro_batch.packed.lengths[q], trained);
  }
  return count;
}

double accumulate_draft_gradients(model::Network& network, const MicroBatch& micro_batch,
                                  const Tensor& hidden_UH, double scale) {
  check(hidden_UH.size(0) == micro_batch.packed.tokens.num_tokens(),
        "draft layers are trained where one rank has all rows");
  DraftRows rows = draft_rows_of(micro_batch);
  if (rows.counted_P.size(0) == 0) return 0;
  const at::Device device = hidden_UH.device();
  rows.tokens.ids_T = rows.tokens.ids_T.to(device);
  rows.tokens.rotary_row_T = rows.tokens.rotary_row_T.to(device);
  const at::AutoGradMode grad_mode(true);
  const Tensor hidden_DH = hidden_UH.detach().index_select(0, rows.row_D.to(device));
  model::TreeAttention attention(rows.tokens);
  if (micro_batch.orders_backward) attention.order_backward();
  const Tensor drafted_DH = network.draft(0, hidden_DH, rows.tokens, attention);
  const Tensor loss =
      -network
           .draft_log_probs(kernels::pick_rows(drafted_DH, rows.counted_P.to(device)),
                            rows.target_P.to(device))
           .logprob_R.sum(at::kDouble);
  (loss * scale).backward();
  return loss.item<double>();
}

}  // namespace slime::train
