#include "engine/gpu_sparse_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/trace.h"
#include "model/sparse_attention.h"

namespace slime::engine {
namespace {

using kernels::kPageTokens;

constexpr int64_t kMostRows = 32;                 // of a part
constexpr int64_t kMostPairs = int64_t{1} << 19;  // of a row and a key that an indexer scores

}  // namespace

void GpuSparseAttention::begin_step(const kernels::PagedBatch& batch,
                                    std::span<const kernels::PagedSpan> spans) {
  batch_ = batch;
  position_T1_ = batch.index_T.unsqueeze(1);
  parts_.clear();
  choices_.clear();
  int64_t row = 0;
  for (const kernels::PagedSpan& span : spans) {
    const int64_t end = row + span.num_rows,
                  most = std::max<int64_t>(1, kMostPairs / span.num_keys);
    if (span.num_rows == 1 && !parts_.empty() && !parts_.back().is_one_sequence) {
      Part& last = parts_.back();
      const int64_t num_keys = std::max(last.num_keys, span.num_keys);
      if (last.size < kMostRows && (last.size + 1) * num_keys <= kMostPairs) {
        last.num_keys = num_keys;
        ++last.size;
        row = end;
        continue;
      }
    }
    while (row < end) {
      const int64_t size = std::min({kMostRows, most, end - row});
      parts_.push_back({.begin = row,
                        .size = size,
                        .num_keys = span.num_keys - (end - row - size),
                        .is_one_sequence = span.num_rows > 1});
      row += size;
    }
  }
}

Tensor GpuSparseAttention::slots(const Part& part, const Tensor& position_nk) const {
  const int64_t rows = position_nk.size(0);
  const Tensor first_n1 =
      batch_.page_starts.index_select(0, batch_.row_sequence_T.narrow(0, part.begin, rows))
          .to(at::kLong)
          .unsqueeze(1);
  const Tensor place_nk = first_n1 + position_nk.div(kPageTokens, "floor");
  const Tensor page_nk =
      batch_.pages.index_select(0, place_nk.flatten()).view_as(position_nk).to(at::kLong);
  return page_nk * kPageTokens + position_nk.remainder(kPageTokens);
}

/// [n, K]; of tokens behind a row it is anything.
Tensor GpuSparseAttention::scores(const Part& part, const model::IndexInput& index,
                                  const Tensor& keys_XD) const {
  const Tensor position_1K = at::arange(part.num_keys, position_T1_.options()).unsqueeze(0);
  const auto of_part = [&](const Tensor& x) { return x.narrow(0, part.begin, part.size); };
  // Places behind the end of a sequence may be in no page of it: its own row stands there.
  const Tensor slot_nK = slots(
      part, part.is_one_sequence ? position_1K : at::minimum(position_1K, of_part(position_T1_)));
  Tensor keys = keys_XD.index_select(0, slot_nK.flatten());
  if (!part.is_one_sequence) keys = keys.view({part.size, part.num_keys, keys_XD.size(1)});
  return model::index_scores(of_part(index.query_TJD), of_part(index.weight_TJ), keys);
}

void GpuSparseAttention::choose(const model::IndexInput& index, const Tensor& index_keys,
                                int64_t count) {
  const kernels::TraceRange range("choose_tokens");
  const Tensor keys_XD = index_keys.view({-1, index_keys.size(-1)});
  keys_XD.index_copy_(0, batch_.slot_T.to(at::kLong), index.key_TD);
  choices_.clear();
  for (const Part& part : parts_) {
    const Tensor own_n1 = position_T1_.narrow(0, part.begin, part.size);
    const Tensor all_1K = at::arange(part.num_keys, own_n1.options()).unsqueeze(0);
    Tensor position_nk = all_1K.expand({part.size, part.num_keys});
    if (part.num_keys > count) {
      position_nk = model::best_tokens(
          scores(part, index, keys_XD).masked_fill_(all_1K > own_n1, -INFINITY), count);
    }
    choices_.push_back({slots(part, at::minimum(position_nk, own_n1)), position_nk <= own_n1});
  }
}

Tensor GpuSparseAttention::attend(const Tensor& q_TNE, const Tensor& rows_XE, int64_t rank,
                                  double scale) const {
  const kernels::TraceRange range("sparse_attention");
  check(choices_.size() == parts_.size(), "a layer before this one has chosen tokens");
  const int64_t size = q_TNE.size(2);
  Tensor out_TNL = at::empty({q_TNE.size(0), q_TNE.size(1), rank}, q_TNE.options());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto& [slot_nk, is_seen_nk] = choices_[i];
    const int64_t begin = parts_[i].begin, rows = parts_[i].size;
    const Tensor seen_nkE = rows_XE.index_select(0, slot_nk.flatten())
                                .view({rows, slot_nk.size(1), size})
                                .to(at::kFloat);
    const Tensor weight_nNk =
        at::bmm(q_TNE.narrow(0, begin, rows).to(at::kFloat), seen_nkE.transpose(1, 2))
            .mul_(scale)
            .masked_fill_(is_seen_nk.logical_not().unsqueeze(1), -INFINITY)
            .softmax(-1);
    out_TNL.narrow(0, begin, rows)
        .copy_(at::bmm(weight_nNk, seen_nkE.narrow(2, size - rank, rank)));
  }
  return out_TNL;
}

int64_t GpuSparseAttention::workspace_bytes(const model::IndexerConfig& indexer,
                                            const Sizes& sizes) {
  constexpr int64_t kFloat = sizeof(float), kPlace = sizeof(int64_t) + sizeof(bool);
  const int64_t pairs = std::max(sizes.longest, std::min(kMostPairs, kMostRows * sizes.longest)),
                chosen = std::min(indexer.count, sizes.longest);
  // Products of heads, gathered keys; scores, sorted too, and their places before and after.
  const int64_t scoring =
      pairs * (kFloat * (indexer.num_heads + indexer.head_dim + 3) + 4 * kPlace);
  // Gathered rows in two precisions and in another order; scores and weights of heads.
  const int64_t attending = kMostRows * chosen * kFloat * 3 * (sizes.row_size + sizes.num_heads);
  return std::max(scoring, attending) + sizes.rows * chosen * kPlace;
}

}  // namespace slime::engine
