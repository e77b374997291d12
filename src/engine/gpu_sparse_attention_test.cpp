/// Sparse attention over pages against plain loops in float64. It is operations of LibTorch, so a CPU
/// computes what a GPU does.

#include "engine/gpu_sparse_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gpu/for_tests.h"

namespace slime::engine {
namespace {

using kernels::kPageTokens;
using kernels::PagedSpan;

constexpr int64_t kHeads = 3, kRank = 6, kRotary = 4, kSize = kRank + kRotary;
constexpr int64_t kIndexHeads = 2, kIndexSize = 8, kCount = 12;
constexpr double kScale = 0.3;

/// Sequences in scattered pages; what nobody has written is no number.
struct Step {
  std::vector<PagedSpan> spans;
  kernels::PagedBatch batch;
  Tensor positions_T, q_TNE, rows_PSE, index_keys_PSD;
  model::IndexInput index;
  Tensor expected_TNL;  // float64
  Tensor expected_index_keys_PSD;

  Step(std::vector<PagedSpan> sequences, const at::Device& device, at::ScalarType type)
      : spans(std::move(sequences)) {
    at::manual_seed(5);
    const at::TensorOptions floats(at::kFloat);
    int64_t rows = 0, pages = 0;
    for (const PagedSpan& span : spans) {
      rows += span.num_rows;
      pages += (span.num_keys + kPageTokens - 1) / kPageTokens;
    }
    const Tensor order = at::randperm(pages, at::TensorOptions(at::kLong));
    q_TNE = at::randn({rows, kHeads, kSize}, floats).to(type);
    // Few different numbers, so that many scores are equal, and many are 0.
    index.query_TJD = at::randint(-1, 2, {rows, kIndexHeads, kIndexSize}, floats);
    index.key_TD = at::randint(-1, 2, {rows, kIndexSize}, floats);
    index.weight_TJ = at::randint(-1, 2, {rows, kIndexHeads}, floats);
    rows_PSE = at::full({pages, 1, kPageTokens, kSize}, NAN, floats).to(type);
    index_keys_PSD = at::full({pages, kPageTokens, kIndexSize}, NAN, floats);
    expected_TNL = at::empty({rows, kHeads, kRank}, at::kDouble);
    std::vector<int32_t> slots, row_sequence, page_starts{0}, page_ids;
    std::vector<int64_t> positions;
    for (std::size_t s = 0; s < spans.size(); ++s) {
      const auto& [num_rows, num_keys, is_packed] = spans[s];
      const int64_t count = (num_keys + kPageTokens - 1) / kPageTokens, first = page_starts.back();
      for (int64_t p = 0; p < count; ++p)
        page_ids.push_back(static_cast<int32_t>(order[first + p].item<int64_t>()));
      page_starts.push_back(static_cast<int32_t>(first + count));
      const Tensor keys_KE = at::randn({num_keys, kSize}, floats).to(type);
      const Tensor index_KD = at::randint(-1, 2, {num_keys, kIndexSize}, floats);
      const auto row = static_cast<int64_t>(positions.size());
      index_KD.narrow(0, num_keys - num_rows, num_rows)
          .copy_(index.key_TD.narrow(0, row, num_rows));
      std::vector<int64_t> places;
      for (int64_t k = 0; k < num_keys; ++k) {
        places.push_back(page_ids[first + k / kPageTokens] * kPageTokens + k % kPageTokens);
        if (k < num_keys - num_rows) continue;
        slots.push_back(static_cast<int32_t>(places.back()));
        row_sequence.push_back(static_cast<int32_t>(s));
        positions.push_back(k);
        attend(static_cast<int64_t>(positions.size()) - 1, keys_KE.narrow(0, 0, k + 1),
               index_KD.narrow(0, 0, k + 1));
      }
      const Tensor place_K = at::tensor(places, at::kLong);
      rows_PSE.view({-1, kSize}).index_copy_(0, place_K, keys_KE);
      // Keys of new rows are still to be written.
      const int64_t earlier = num_keys - num_rows;
      index_keys_PSD.view({-1, kIndexSize})
          .index_copy_(0, place_K.narrow(0, 0, earlier), index_KD.narrow(0, 0, earlier));
    }
    const auto there = [&](const Tensor& x) { return x.to(device); };
    batch.slot_T = there(at::tensor(slots, at::kInt));
    batch.row_sequence_T = there(at::tensor(row_sequence, at::kInt));
    batch.page_starts = there(at::tensor(page_starts, at::kInt));
    batch.pages = there(at::tensor(page_ids, at::kInt));
    positions_T = there(at::tensor(positions, at::kLong));
    expected_index_keys_PSD = index_keys_PSD.clone();
    expected_index_keys_PSD.view({-1, kIndexSize})
        .index_copy_(0, at::tensor(slots, at::kInt).to(at::kLong), index.key_TD);
    for (Tensor* x :
         {&q_TNE, &rows_PSE, &index_keys_PSD, &index.query_TJD, &index.key_TD, &index.weight_TJ})
      *x = there(*x);
  }

  /// One row: of equal scores the earlier token counts.
  void attend(int64_t row, const Tensor& keys_KE, const Tensor& index_KD) {
    const Tensor score_K =
        at::mv(at::mm(index_KD, index.query_TJD[row].t()).relu(), index.weight_TJ[row])
            .contiguous();
    std::vector<std::pair<float, int64_t>> best;
    for (int64_t k = 0; k < keys_KE.size(0); ++k)
      best.emplace_back(-score_K.const_data_ptr<float>()[k], k);
    std::ranges::sort(best);
    best.resize(std::min<std::size_t>(best.size(), kCount));
    std::vector<int64_t> places;
    for (const auto& [score, place] : best) places.push_back(place);
    const Tensor seen_kE = keys_KE.index_select(0, at::tensor(places, at::kLong)).to(at::kDouble);
    const Tensor weight_Nk = (at::mm(q_TNE[row].to(at::kDouble), seen_kE.t()) * kScale).softmax(-1);
    expected_TNL[row].copy_(at::mm(weight_Nk, seen_kE.narrow(1, kRotary, kRank)));
  }
};

void expect_right(const at::Device& device, at::ScalarType type, double tolerance) {
  // Prompts that begin and go on, decode beside them: of several parts, and short of a choice.
  for (const std::vector<PagedSpan>& spans : std::vector<std::vector<PagedSpan>>{
           {{1, 50}, {1, 5}, {40, 63}, {1, 33}, {7, 7}, {1, 100}, {1, 12}, {1, 13}},
           std::vector<PagedSpan>(70, {1, 37}),
           {{1, 3}}}) {
    Step step(spans, device, type);
    GpuSparseAttention attention;
    attention.begin_step(step.batch, step.positions_T, step.spans);
    attention.choose(step.index, step.index_keys_PSD, kCount);
    const Tensor out_TNL =
        attention.attend(step.q_TNE, step.rows_PSE.view({-1, kSize}), kRank, kScale);
    EXPECT_EQ(out_TNL.scalar_type(), type);
    const Tensor difference = out_TNL.cpu().to(at::kDouble) - step.expected_TNL;
    EXPECT_LT(difference.abs().max().item<double>(), tolerance);
    EXPECT_TRUE(at::allclose(step.index_keys_PSD.cpu(), step.expected_index_keys_PSD, 0, 0, true));
  }
}

TEST(GpuSparseAttention, LooksAtTheBestTokensOfEachRowOnACpu) {
  expect_right(at::kCPU, at::kFloat, 1e-5);
  expect_right(at::kCPU, at::kBFloat16, 0.02);
}

TEST(GpuSparseAttention, LooksAtTheBestTokensOfEachRow) {
  SLIME_NEEDS_GPU();
  expect_right(at::kCUDA, at::kFloat, 1e-5);
  expect_right(at::kCUDA, at::kBFloat16, 0.02);
  expect_right(at::kCUDA, at::kHalf, 0.004);
}

}  // namespace
}  // namespace slime::engine
