#include "kernels/cpu/tree_attention_pages.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/processor.h"
#include "kernels/cpu/reference.h"
#include "kernels/cpu/tree_cases.h"

namespace slime::kernels::cpu {
namespace {

struct PagesResult {
  Tensor y_TC, logsumexp_TN;
};

PagesResult in_pages(const Tensor& x, const std::vector<Segment>& segments,
                     const RotaryShape& heads, const TreeAttentionShape& shape,
                     const Tensor& sinks = {}) {
  PagesResult out{at::zeros({x.size(0), heads.num_heads * heads.head_dim}, x.options()),
                  at::zeros({x.size(0), heads.num_heads}, at::kFloat)};
  tree_attention_pages(x, segments, heads, shape, sinks, out.y_TC, out.logsumexp_TN);
  return out;
}

Tensor random_heads_in_pages(int64_t tokens, const RotaryShape& heads, at::ScalarType type) {
  return at::randn({tokens, (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim}).to(type);
}

TEST(TreeAttentionInPages, EqualsTheTwin) {
  if (!has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  at::manual_seed(12);
  const ReferenceDevice slow;
  for (const RotaryShape& heads : {RotaryShape{6, 2, 12, 0}, RotaryShape{2, 2, 40, 0}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      // Results are rounded to the precision of the activations.
      const double tolerance = type == at::kFloat ? 1e-5 : 1.2e-2;
      for (const TreeCase& c : tree_cases()) {
        for (const double cap : {0.0, 1.5}) {
          const TreeAttentionShape shape{0.3, c.window, cap};
          const Tensor x = random_heads_in_pages(c.segments.back().end, heads, type);
          const PagesResult fast = in_pages(x, c.segments, heads, shape);
          Tensor statistic;
          const Tensor y =
              slow.tree_attention(x.to(at::kDouble), c.segments, heads, shape, statistic);
          EXPECT_LT((fast.y_TC.to(at::kDouble) - y).abs().max().item<double>(), tolerance)
              << c.name;
          EXPECT_LT((fast.logsumexp_TN - statistic).abs().max().item<double>(), 1e-5) << c.name;
        }
      }
    }
  }
}

/// What a row sees has the same bits in a tree with siblings and in a batch of its chain alone.
TEST(TreeAttentionInPages, ARowHasTheSameBitsWhateverElseIsInTheBatch) {
  if (!has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  at::manual_seed(13);
  const RotaryShape heads{4, 2, 24, 0};
  const std::vector<Segment> tree{{0, 75, -1}, {75, 80, 0}, {80, 240, 0}, {240, 241, 2}};
  const Tensor sinks = at::randn({heads.num_heads});
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t window : {0, 20, 100}) {
      const TreeAttentionShape shape{0.3, window, 0};
      const Tensor x = random_heads_in_pages(241, heads, type);
      const PagesResult all = in_pages(x, tree, heads, shape, sinks);
      // The chain of the last segment: rows 0 .. 75 and 80 .. 241, in three cuts.
      const Tensor chain = at::cat({x.narrow(0, 0, 75), x.narrow(0, 80, 161)});
      for (const std::vector<Segment>& segments : {std::vector<Segment>{{0, 236, -1}},
                                                   {{0, 1, -1}, {1, 236, 0}},
                                                   {{0, 130, -1}, {130, 131, 0}, {131, 236, 1}}}) {
        const PagesResult alone = in_pages(chain, segments, heads, shape, sinks);
        EXPECT_TRUE(alone.y_TC.narrow(0, 75, 161).equal(all.y_TC.narrow(0, 80, 161))) << window;
        EXPECT_TRUE(
            alone.logsumexp_TN.narrow(0, 75, 161).equal(all.logsumexp_TN.narrow(0, 80, 161)));
        EXPECT_TRUE(alone.y_TC.narrow(0, 0, 75).equal(all.y_TC.narrow(0, 0, 75)));
      }
    }
  }
}

TEST(TreeAttentionInPages, ASinkTakesItsShare) {
  if (!has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  // One token, one head: the softmax over its own score 0 and a sink of log 3 leaves a quarter.
  const RotaryShape heads{1, 1, 8, 0};
  Tensor x = at::zeros({1, 24});
  x.narrow(1, 16, 8).fill_(4.0F);
  const PagesResult out =
      in_pages(x, {{0, 1, -1}}, heads, {1.0, 0, 0}, at::full({1}, std::log(3.0)));
  EXPECT_NEAR(out.y_TC.mean().item<double>(), 1.0, 1e-6);
  EXPECT_NEAR(out.logsumexp_TN.item<double>(), std::log(4.0), 1e-6);
}

}  // namespace
}  // namespace slime::kernels::cpu
