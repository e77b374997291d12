#include "kernels/cpu/tree_attention_tiles.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/cpu/portable_tile_ops.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/reference.h"
#include "kernels/cpu/tree_cases.h"

namespace slime::kernels::cpu {
namespace {

const at::BFloat16* bits(const Tensor& x) { return static_cast<at::BFloat16*>(x.data_ptr()); }

/// Relative to the largest element. Weights and results are rounded to eight bits (half a unit:
/// 2^-9), and a gradient passes three such roundings.
constexpr double kEightBitTolerance = 1.2e-2;

void expect_close_in_eight_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const Tensor wide = b.to(at::kDouble);
  const double scale = std::max(1.0, wide.abs().max().item<double>());
  EXPECT_LT((a.to(at::kDouble) - wide).abs().max().item<double>(), kEightBitTolerance * scale)
      << what;
}

void compare_with_the_twin(const TileOps& ops, const AttentionRows& rows, double cap) {
  at::manual_seed(12);
  const ReferenceDevice slow;
  for (const RotaryShape& heads : {RotaryShape{6, 2, 12, 0}, RotaryShape{2, 2, 40, 0}}) {
    for (const TreeCase& c : tree_cases()) {
      const int64_t tokens = c.segments.back().end, out = heads.num_heads * heads.head_dim;
      const TreeAttentionShape shape{0.3, c.window, cap};
      const Tensor x =
          at::randn({tokens, (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim})
              .to(at::kBFloat16);
      const Tensor dy = at::randn({tokens, out}).to(at::kBFloat16);
      const Tensor y = at::empty({tokens, out}, at::kBFloat16);
      const Tensor statistic = at::empty({tokens, heads.num_heads});
      tree_attention_tiles(ops, rows, bits(x), c.segments, heads, shape,
                           static_cast<at::BFloat16*>(y.data_ptr()), statistic.data_ptr<float>());
      Tensor expected_statistic;
      const Tensor expected =
          slow.tree_attention(x.to(at::kDouble), c.segments, heads, shape, expected_statistic);
      expect_close_in_eight_bits(y, expected, c.name);
      expect_close_in_eight_bits(statistic, expected_statistic, c.name);
      const Tensor dx = at::full(x.sizes(), 9.0F);
      tree_attention_backward_tiles(ops, rows, bits(dy), bits(y), bits(x),
                                    statistic.data_ptr<float>(), c.segments, heads, shape,
                                    dx.data_ptr<float>());
      expect_close_in_eight_bits(
          dx,
          slow.tree_attention_backward(dy.to(at::kDouble), expected, x.to(at::kDouble),
                                       expected_statistic, c.segments, heads, shape),
          c.name);
    }
  }
}

TEST(TreeAttentionInTiles, EqualsTheTwinAndSoDoesItsGradient) {
  compare_with_the_twin(portable_tile_ops(), attention_rows(), 0);
}

// Scores are about as large as the cap.
TEST(TreeAttentionInTiles, OfCappedScoresEqualsTheTwinAndSoDoesItsGradient) {
  compare_with_the_twin(portable_tile_ops(), attention_rows(), 1.5);
}

TEST(TreeAttentionInTiles, OfTheProcessorEqualsTheTwin) {
  if (!has_tiles()) GTEST_SKIP() << "this processor has no AVX-512 BF16";
  for (const double cap : {0.0, 1.5})
    compare_with_the_twin(tile_ops(), attention_rows_avx512(), cap);
}

}  // namespace
}  // namespace slime::kernels::cpu
