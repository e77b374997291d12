/// The choice of tokens in decode against plain sorting. Attention to chosen tokens is in
/// latent_attention_test.cpp.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <numeric>

#include "kernels/cuda/attention/paged_tables_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/gpu/sparse.h"
#include "kernels/page.h"

namespace slime::kernels {
namespace {

constexpr int64_t kSize = 128;

/// Sequences in scattered pages, of which a row each decodes. Slots that nobody has written hold no numbers.
struct ChoiceCase {
  std::vector<int64_t> lengths;  // the new token included
  int64_t num_heads = 64;
  int64_t count = 100;
  int64_t most_keys = 0;  // 0: the longest
  int64_t padding = 0;
  /// Few different whole numbers: scores are exact, and many are equal.
  bool is_whole = true;
  bool weighs_nothing = false;  // all scores are 0, or -0

  PagedBatch batch;
  IndexCall call;
  Tensor query_TJD, key_TD, weight_TJ, old_keys, slot_T;  // on the CPU
  std::vector<Tensor> keys_KD;                            // of each sequence
  std::vector<std::vector<int64_t>> place_K;

  Tensor made_up(at::IntArrayRef shape) const {
    const at::TensorOptions floats(at::kFloat);
    return is_whole ? at::randint(-1, 2, shape, floats) : at::randn(shape, floats);
  }

  void build() {
    const auto rows = static_cast<int64_t>(lengths.size());
    int64_t num_pages = 0;
    for (const int64_t length : lengths) num_pages += (length + kPageTokens - 1) / kPageTokens;
    const Tensor order = at::randperm(num_pages, at::TensorOptions(at::kLong));
    query_TJD = made_up({rows + padding, num_heads, kSize});
    key_TD = made_up({rows + padding, kSize});
    weight_TJ = made_up({rows + padding, num_heads});
    if (weighs_nothing) weight_TJ = -weight_TJ.abs() * 0;
    old_keys = at::full({num_pages + 1, kPageTokens, kSize}, NAN, at::TensorOptions(at::kFloat));
    Tensor flat = old_keys.view({-1, kSize});
    PagedTables tables;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t length = lengths[row], first = tables.page_starts.back();
      std::vector<int64_t> ids, places;
      for (int64_t p = 0; p < (length + kPageTokens - 1) / kPageTokens; ++p)
        ids.push_back(order[first + p].item<int64_t>());
      for (int64_t k = 0; k < length; ++k)
        places.push_back(ids[k / kPageTokens] * kPageTokens + k % kPageTokens);
      tables.add({1, length}, ids);
      const Tensor keys = made_up({length, kSize});
      flat.index_copy_(0, at::tensor(places, at::kLong).narrow(0, 0, length - 1),
                       keys.narrow(0, 0, length - 1));
      keys[length - 1].copy_(key_TD[row]);
      keys_KD.push_back(keys);
      place_K.push_back(std::move(places));
    }
    slot_T = at::tensor(tables.slots, at::kLong);
    tables.pad(padding, num_pages);
    tables.copy_to(batch);
    call.batch = &batch;
    batch.index_T = to_gpu(tables.positions, at::kLong);
    call.query_TJD = to_gpu(query_TJD);
    call.key_TD = to_gpu(key_TD);
    call.weight_TJ = to_gpu(weight_TJ);
    call.keys = to_gpu(old_keys);
    call.count = count;
    call.most_keys = most_keys > 0 ? most_keys : *std::ranges::max_element(lengths);
  }

  Tensor scores(int64_t row, at::ScalarType type) const {
    return at::mv(at::mm(keys_KD[row].to(type), query_TJD[row].to(type).t()).relu(),
                  weight_TJ[row].to(type));
  }
};

std::vector<int64_t> chosen_places(const Tensor& slot_TC, int64_t row, int64_t count) {
  const Tensor own = slot_TC[row].narrow(0, 0, count).to(at::kLong).contiguous();
  return {own.const_data_ptr<int64_t>(), own.const_data_ptr<int64_t>() + count};
}

void expect_keys_in_their_slots(const ChoiceCase& one) {
  const int64_t rows = one.slot_T.size(0), pages = one.old_keys.size(0) - 1;
  Tensor expected = one.old_keys.clone();
  expected.view({-1, kSize}).index_copy_(0, one.slot_T, one.key_TD.narrow(0, 0, rows));
  EXPECT_TRUE(at::equal(expected.narrow(0, 0, pages).contiguous().view(at::kByte),
                        one.call.keys.cpu().narrow(0, 0, pages).contiguous().view(at::kByte)));
}

void expect_the_best(ChoiceCase& one) {
  at::manual_seed(17);
  one.build();
  const Tensor slot_TC = open_gpu().choose_tokens(one.call).cpu();
  const int64_t most = most_chosen(one.count, one.call.most_keys);
  ASSERT_EQ(slot_TC.sizes(),
            (std::vector<int64_t>{static_cast<int64_t>(one.lengths.size()) + one.padding, most}));
  for (std::size_t row = 0; row < one.lengths.size(); ++row) {
    const Tensor score_K = one.scores(static_cast<int64_t>(row), at::kFloat).contiguous();
    std::vector<int64_t> best(static_cast<std::size_t>(one.lengths[row]));
    std::iota(best.begin(), best.end(), 0);
    const float* score = score_K.const_data_ptr<float>();
    std::ranges::stable_sort(best, [&](int64_t a, int64_t b) { return score[a] > score[b]; });
    best.resize(std::min<std::size_t>(best.size(), static_cast<std::size_t>(most)));
    std::ranges::sort(best);
    std::vector<int64_t> expected;
    for (const int64_t k : best) expected.push_back(one.place_K[row][static_cast<std::size_t>(k)]);
    EXPECT_EQ(
        chosen_places(slot_TC, static_cast<int64_t>(row), static_cast<int64_t>(expected.size())),
        expected)
        << "row " << row << " of " << one.lengths.size() << ", " << one.lengths[row] << " keys";
  }
  for (int64_t row = slot_TC.size(0) - one.padding; row < slot_TC.size(0); ++row)
    EXPECT_EQ(slot_TC[row][0].item<int64_t>(), (one.old_keys.size(0) - 1) * kPageTokens);
  expect_keys_in_their_slots(one);
}

TEST(GpuSparseDecode, ChoosesTheBestOfOneSequenceOfAnyLength) {
  SLIME_NEEDS_GPU();
  for (const int64_t length :
       {1, 2, 15, 16, 17, 63, 64, 65, 99, 100, 101, 127, 128, 129, 1000, 5000}) {
    ChoiceCase one;
    one.lengths = {length};
    SCOPED_TRACE(length);
    expect_the_best(one);
  }
}

TEST(GpuSparseDecode, ChoosesInBatchesOfRaggedSequences) {
  SLIME_NEEDS_GPU();
  for (const int64_t rows : {2, 3, 9, 16, 33, 64, 300}) {
    for (const int64_t heads : {16, 32, 64}) {
      ChoiceCase one;
      one.num_heads = heads;
      for (int64_t i = 0; i < rows; ++i)
        one.lengths.push_back(1 + 37 * i % 261 + (i % 29 == 1 ? 900 : 0));
      one.padding = rows % 5;
      one.most_keys = 3000;
      SCOPED_TRACE(rows);
      expect_the_best(one);
    }
  }
}

/// One thread block to a row, and clusters of two, four and eight, whose slices may be empty.
TEST(GpuSparseDecode, ChoosesFromLongContextsInSlices) {
  SLIME_NEEDS_GPU();
  for (const int64_t rows : {1, 20, 50, 80}) {
    ChoiceCase one;
    one.count = 2048;
    one.num_heads = 16;
    one.most_keys = 40'001;
    for (int64_t i = 0; i < rows; ++i) one.lengths.push_back(2100 + 61 * i);
    // Longer than what a thread block keeps, and one that a few blocks have alone.
    one.lengths.front() = 40'001;
    if (rows > 1) one.lengths.back() = 2049;
    SCOPED_TRACE(rows);
    expect_the_best(one);
  }
  ChoiceCase longest;
  longest.lengths = {200'007, 5};
  longest.num_heads = 16;
  longest.most_keys = 210'000;
  longest.count = 2048;
  expect_the_best(longest);
}

TEST(GpuSparseDecode, OfEqualScoresTheEarlierTokenCounts) {
  SLIME_NEEDS_GPU();
  for (const int64_t most_keys : {5000, 20'000}) {
    ChoiceCase one;
    one.lengths = {5000, 101, 100, 3333};
    one.most_keys = most_keys;
    one.weighs_nothing = true;
    expect_the_best(one);
  }
}

TEST(GpuSparseDecode, TakesAllTokensWhereNoSequenceHasMore) {
  SLIME_NEEDS_GPU();
  ChoiceCase one;
  one.lengths = {5, 16, 400};
  one.count = 2048;
  expect_the_best(one);
}

/// Another order of the sums may choose another token where scores are as good as equal, and nowhere else.
TEST(GpuSparseDecode, ScoresInFloat32) {
  SLIME_NEEDS_GPU();
  at::manual_seed(5);
  for (const int64_t heads : {16, 32, 64}) {
    ChoiceCase one;
    one.lengths = {3000, 129, 4096, 70};
    one.num_heads = heads;
    one.is_whole = false;
    one.build();
    const Tensor slot_TC = open_gpu().choose_tokens(one.call).cpu();
    for (int64_t row = 0; row < 4; ++row) {
      const int64_t length = one.lengths[static_cast<std::size_t>(row)],
                    count = std::min(length, one.count);
      const auto& places = one.place_K[static_cast<std::size_t>(row)];
      const Tensor score_K = one.scores(row, at::kDouble);
      Tensor is_chosen_K = at::zeros({length}, at::TensorOptions(at::kBool));
      int64_t before = -1;
      for (const int64_t place : chosen_places(slot_TC, row, count)) {
        const int64_t k = std::ranges::find(places, place) - places.begin();
        ASSERT_LT(k, length);
        EXPECT_GT(k, before);
        before = k;
        is_chosen_K[k] = true;
      }
      EXPECT_EQ(is_chosen_K.sum().item<int64_t>(), count);
      if (count == length) continue;
      const double worst = score_K.index({is_chosen_K}).min().item<double>(),
                   best_left = score_K.index({is_chosen_K.logical_not()}).max().item<double>();
      // Of heads times 128 products a few roundings are left.
      EXPECT_GT(worst, best_left - 1e-5 * score_K.abs().max().item<double>());
    }
    expect_keys_in_their_slots(one);
  }
}

TEST(GpuSparseDecode, IsRecordedAndReplayedWithOtherLengths) {
  SLIME_NEEDS_GPU();
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
  ChoiceCase one;
  one.lengths = std::vector<int64_t>(7, 900);
  one.most_keys = 1000;
  one.build();
  open_gpu().choose_tokens(one.call);
  Tensor recorded;
  const auto graph = open_gpu().record([&] { recorded = open_gpu().choose_tokens(one.call); },
                                       nullptr, GraphLaunch::kWhole);
  for (const int64_t position : {899, 50, 99, 100, 620}) {
    one.batch.index_T.fill_(position);
    graph->replay();
    const Tensor expected = open_gpu().choose_tokens(one.call);
    const int64_t count = std::min<int64_t>(position + 1, 100);
    EXPECT_TRUE(at::equal(recorded.narrow(1, 0, count), expected.narrow(1, 0, count))) << position;
  }
}

}  // namespace
}  // namespace slime::kernels
