/// Sparse attention over pages against plain loops in float64. It is operations of LibTorch, so a CPU
/// computes what a GPU does. And decode by kernels against it.

#include "engine/gpu_sparse_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cache_groups.h"
#include "engine/gpu_attention.h"
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
  Tensor q_TNE, rows_PSE, index_keys_PSD;
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
    batch.index_T = there(at::tensor(positions, at::kLong));
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
    attention.begin_step(step.batch, step.spans);
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

/// Two layers of published sizes, of which the second takes the choice of the first.
struct DecodeLayers {
  static constexpr int64_t kLatent = 512, kRotating = 64, kPlain = 128, kValue = 128, kQueries = 16,
                           kNumIndexHeads = 32, kIndexNumbers = 128, kChosen = 64;

  std::vector<int64_t> lengths;
  GpuStepInputs in;
  std::vector<model::LatentLayer> layers;
  std::vector<model::BlockNeeds> needs;
  Tensor rows_LPSE, index_keys_LPSD;  // before the step
  std::vector<model::LatentProjection> projections;

  DecodeLayers(std::vector<int64_t> of_sequences, bool rotates_pairs)
      : lengths(std::move(of_sequences)) {
    const at::TensorOptions there = at::TensorOptions(at::kCUDA),
                            halves = there.dtype(at::kBFloat16), floats = there.dtype(at::kFloat);
    const auto rows = static_cast<int64_t>(lengths.size());
    int64_t pages = 0;
    for (const int64_t length : lengths) pages += (length + kPageTokens - 1) / kPageTokens;
    const Tensor order = at::randperm(pages, at::TensorOptions(at::kLong));
    std::vector<int32_t> slots, row_sequence, starts{0}, ids;
    std::vector<int64_t> positions;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t last = lengths[row] - 1, first = starts.back();
      for (int64_t p = 0; p <= last / kPageTokens; ++p)
        ids.push_back(order[first + p].item<int32_t>());
      starts.push_back(static_cast<int32_t>(ids.size()));
      slots.push_back(static_cast<int32_t>(ids.back() * kPageTokens + last % kPageTokens));
      row_sequence.push_back(static_cast<int32_t>(row));
      positions.push_back(last);
      in.spans.push_back({1, lengths[row]});
    }
    in.batch.slot_T = at::tensor(slots, at::kInt).to(at::kCUDA);
    in.batch.row_sequence_T = at::tensor(row_sequence, at::kInt).to(at::kCUDA);
    in.batch.page_starts = at::tensor(starts, at::kInt).to(at::kCUDA);
    in.batch.query_starts = at::arange(rows + 1, there.dtype(at::kInt));
    in.batch.pages = at::tensor(ids, at::kInt).to(at::kCUDA);
    in.rotary_row_T = in.batch.index_T = at::tensor(positions, at::kLong).to(at::kCUDA);
    rows_LPSE = at::randn({2, pages, 1, kPageTokens, kLatent + kRotating}, halves);
    index_keys_LPSD = at::randn({1, pages, kPageTokens, kIndexNumbers}, floats);
    const Tensor angle_PR = at::rand({1024, kRotating / 2}, floats) * 6;
    for (int i = 0; i < 2; ++i) {
      model::LatentLayer layer;
      layer.index = i;
      layer.num_heads = kQueries;
      layer.rank = kLatent;
      layer.plain_dim = kPlain;
      layer.rotary_dim = kRotating;
      layer.value_dim = kValue;
      layer.scale = 0.07;
      layer.index_count = kChosen;
      layer.lends_choice = i == 0;
      layer.expand.matrix = at::randn({kQueries * (kPlain + kValue), kLatent}, halves) * 0.04;
      layer.latent_norm.value = at::rand({kLatent}, halves) + 0.5;
      layer.norm_eps = 1e-6;
      layer.rotary_order_R = at::cat({at::arange(0, kRotating, 2, there.dtype(at::kLong)),
                                      at::arange(1, kRotating, 2, there.dtype(at::kLong))});
      layer.cos_PR = angle_PR.cos();
      layer.sin_PR = angle_PR.sin();
      layers.push_back(std::move(layer));
      model::BlockNeeds block;
      block.cache = {.heads = 1,
                     .queries_per_head = kQueries,
                     .key_size = kLatent + kRotating,
                     .value_size = 0,
                     .index_size = i == 0 ? kIndexNumbers : 0};
      needs.push_back(std::move(block));
      model::LatentProjection projection;
      projection.query_TE = at::randn({rows, kQueries * (kPlain + kRotating)}, halves);
      projection.latent_TL = at::randn({rows, kLatent}, halves);
      projection.rotary_key_TR = at::randn({rows, kRotating}, halves);
      if (i == 0)
        projection.index = {.query_TE = at::randn({rows, kNumIndexHeads * kIndexNumbers}, halves),
                            .key_TD = at::randn({rows, kIndexNumbers}, halves),
                            .weight_TJ = at::randn({rows, kNumIndexHeads}, floats),
                            .norm = {at::rand({kIndexNumbers}, halves) + 0.5, {}},
                            .norm_bias = {at::randn({kIndexNumbers}, halves) * 0.1, {}},
                            .norm_eps = 1e-6,
                            .cos_PR = angle_PR.cos(),
                            .sin_PR = angle_PR.sin(),
                            .rotates_pairs = rotates_pairs};
      projections.push_back(std::move(projection));
    }
  }

  struct Results {
    std::vector<Tensor> y_TC;
    Tensor rows_LPSE, index_keys_LPSD;
  };
  Results attend(bool by_kernels) {
    Results out{{}, rows_LPSE.clone(), index_keys_LPSD.clone()};
    GpuAttention attention(kernels::open_gpu(), needs, one_group(needs), out.rows_LPSE, {},
                           out.index_keys_LPSD, {}, by_kernels ? 1024 : 0);
    EXPECT_EQ(attention.has_recordable_decode(), by_kernels);
    in.is_decode = by_kernels;
    attention.begin_step(in);
    EXPECT_EQ(attention.wants_sparse_projections(), by_kernels);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      out.y_TC.push_back(
          by_kernels ? attention.attend_projected_latent(layers[i], projections[i], in.rotary_row_T)
                     : attention.model::Attention::attend_projected_latent(
                           layers[i], projections[i], in.rotary_row_T));
    }
    return out;
  }
};

TEST(GpuSparseAttention, DecodesByKernelsAsByOperations) {
  SLIME_NEEDS_GPU();
  using Layers = DecodeLayers;
  if (!kernels::open_gpu().has_sparse_decode(
          {Layers::kQueries, Layers::kLatent, Layers::kRotating, Layers::kPlain, Layers::kValue},
          Layers::kNumIndexHeads, Layers::kIndexNumbers, at::kBFloat16))
    GTEST_SKIP() << "this GPU has no kernels of sparse attention";
  bool rotates_pairs = false;
  for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{
           {700}, {1, 50, 300, 64, 65, 1000, 129}, std::vector<int64_t>(70, 90)}) {
    at::manual_seed(9);
    rotates_pairs = !rotates_pairs;
    DecodeLayers step(lengths, rotates_pairs);
    const DecodeLayers::Results kernels = step.attend(true), operations = step.attend(false);
    for (std::size_t i = 0; i < 2; ++i) {
      const Tensor exact = operations.y_TC[i].to(at::kDouble);
      const Tensor apart_T =
          (kernels.y_TC[i].to(at::kDouble) - exact).norm(2, 1) / exact.norm(2, 1);
      // Two scores may be so close that another order of their sums chooses another token, in a row of fifty.
      const int64_t far = apart_T.gt(0.02).sum().item<int64_t>();
      EXPECT_LE(far, exact.size(0) / 50) << "layer " << i << ": " << apart_T;
    }
    const Tensor exact = operations.rows_LPSE.to(at::kDouble);
    EXPECT_LT(((kernels.rows_LPSE.to(at::kDouble) - exact).norm() / exact.norm()).item<double>(),
              0.004);
    EXPECT_TRUE(at::allclose(kernels.index_keys_LPSD, operations.index_keys_LPSD, 1e-5, 1e-5));
  }
}

}  // namespace
}  // namespace slime::engine
