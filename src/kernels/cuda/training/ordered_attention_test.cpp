/// Attention's backward in one order of sums, on a GPU: equal bits of every call, and the numbers of the
/// usual one.

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "kernels/cuda/gpu_test_tensors.h"

namespace slime::kernels {
namespace {

struct OrderedCase {
  RotaryShape heads;
  std::vector<Segment> segments;
  TreeAttentionShape shape{};
  Tensor x_TE, dy_TC, y_TC, logsumexp_TN;  // on the GPU

  OrderedCase(const RotaryShape& of_heads, std::vector<Segment> of_segments, int64_t window = 0)
      : heads(of_heads), segments(std::move(of_segments)) {
    shape.scale = 1 / std::sqrt(static_cast<double>(heads.head_dim));
    shape.window = window;
    const int64_t rows = segments.back().end, out = heads.num_heads * heads.head_dim;
    const auto options = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
    x_TE = at::randn({rows, out + 2 * heads.num_kv_heads * heads.head_dim}, options);
    dy_TC = at::randn({rows, out}, options);
    y_TC = open_gpu().device().tree_attention(x_TE, segments, heads, shape, logsumexp_TN);
  }

  Tensor backward(bool is_ordered) const {
    TreeAttentionShape of = shape;
    of.ordered_backward = is_ordered;
    return open_gpu().device().tree_attention_backward(dy_TC, y_TC, x_TE, logsumexp_TN, segments,
                                                       heads, of);
  }
};

std::vector<Segment> sequences_of(const std::vector<int64_t>& lengths) {
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    segments.push_back({begin, begin + length, -1});
    begin += length;
  }
  return segments;
}

/// Free memory that a kernel is given next is full of NaN: what it reads before it writes shows.
void dirty_free_memory() {
  at::full({int64_t{1} << 30}, NAN, at::TensorOptions(at::kFloat).device(at::kCUDA));
}

/// Queries, keys and values apart: an error in keys of few heads would be lost among the queries.
void expect_close(const Tensor& dx, const Tensor& usual, const RotaryShape& heads) {
  const int64_t out = heads.num_heads * heads.head_dim, kv = heads.num_kv_heads * heads.head_dim;
  for (const auto& [begin, size] : {std::pair{int64_t{0}, out}, {out, kv}, {out + kv, kv}})
    EXPECT_LT(relative_error(dx.narrow(1, begin, size), usual.narrow(1, begin, size)), 1e-2)
        << "columns from " << begin;
}

void expect_equal_bits(const OrderedCase& of) {
  const Tensor first = of.backward(true);
  for (int i = 0; i < 4; ++i) {
    dirty_free_memory();
    EXPECT_TRUE(of.backward(true).equal(first)) << "repeat " << i;
  }
  expect_close(first, of.backward(false), of.heads);
}

/// 16,384 tokens; the two longest are more than a piece (kernels/gpu/ordered_levels.h).
const std::vector<int64_t> kLengths = {5000, 1, 4097, 2048, 127, 129, 3071, 1911};

TEST(GpuDeterministicAttention, LargeBackwardsOfALongBatchHaveEqualBits) {
  SLIME_NEEDS_GPU();
  ASSERT_EQ(std::accumulate(kLengths.begin(), kLengths.end(), int64_t{0}), 16384);
  for (const int64_t dim : {128, 64}) expect_equal_bits({{32, 8, dim, 0}, sequences_of(kLengths)});
}

TEST(GpuDeterministicAttention, LargeBackwardsOfEightEqualSequencesHaveEqualBits) {
  SLIME_NEEDS_GPU();
  for (const int64_t dim : {128, 64})
    expect_equal_bits({{32, 8, dim, 0}, sequences_of(std::vector<int64_t>(8, 2048))});
}

TEST(GpuDeterministicAttention, LargeBackwardOfOneSequenceInPiecesHasEqualBits) {
  SLIME_NEEDS_GPU();
  expect_equal_bits({{32, 8, 128, 0}, sequences_of({16384})});
}

TEST(GpuDeterministicAttention, LargeBackwardsOfHeadsOf256HaveEqualBits) {
  SLIME_NEEDS_GPU();
  expect_equal_bits({{16, 4, 256, 0}, sequences_of({2048, 1024, 1000})});
}

TEST(GpuDeterministicAttention, LargeBackwardsOfWindowsHaveEqualBits) {
  SLIME_NEEDS_GPU();
  expect_equal_bits({{8, 2, 64, 0}, sequences_of({2048, 300, 1024}), 128});
}

/// Longer than one pair may be: sequences with copies, of batches with and without trees.
TEST(GpuDeterministicAttention, LargeBackwardsOfLongWindowsHaveEqualBits) {
  SLIME_NEEDS_GPU();
  expect_equal_bits({{32, 8, 128, 0}, sequences_of({9000, 300, 4097}), 512});
  const std::vector<Segment> shared = {{0, 5000, -1}, {5000, 6000, 0}, {6000, 10500, 0}};
  expect_equal_bits({{32, 8, 128, 0}, shared, 512});
}

TEST(GpuDeterministicAttention, LargeBackwardsOfSharedPromptsHaveEqualBits) {
  SLIME_NEEDS_GPU();
  const std::vector<Segment> shared = {{0, 5000, -1},    {5000, 6000, 0},   {6000, 6001, 0},
                                       {6001, 10500, 0}, {10500, 11000, 3}, {11000, 12000, -1}};
  expect_equal_bits({{32, 8, 128, 0}, shared});
}

TEST(GpuDeterministicAttention, BackwardsOfShortTreesEqualTheUsualOnes) {
  SLIME_NEEDS_GPU();
  const std::vector<Segment> siblings = {{0, 70, -1}, {70, 75, 0}, {75, 126, 0}, {126, 127, 0}};
  const std::vector<Segment> roots = {{0, 1, -1}, {1, 101, -1}, {101, 229, -1}};
  for (const RotaryShape& heads : {RotaryShape{5, 1, 64, 0}, RotaryShape{4, 4, 128, 0}}) {
    for (const auto& segments : {siblings, roots}) expect_equal_bits({heads, segments});
    for (const auto& segments : {siblings, roots}) expect_equal_bits({heads, segments, 33});
  }
}

}  // namespace
}  // namespace slime::kernels
