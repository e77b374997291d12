// LibTorch's fused attention as training on AMD's GPUs calls it, on the CPU, against plain attention in float64.

#include "kernels/hip/fused_attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/reference.h"

namespace slime::kernels::hip {
namespace {

using ::testing::HasSubstr;

struct TreeCase {
  RotaryShape heads;
  at::ScalarType type = at::kBFloat16;
  std::vector<Segment> segments;
};

double far(const Tensor& a, const Tensor& exact) {
  return ((a.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

struct Attended {
  Tensor y_TC, logsumexp_TN, dheads_TE;
};

Attended plain(const TreeCase& one, const Tensor& heads_TE, const Tensor& dy_TC, double scale) {
  const cpu::ReferenceDevice twin;
  Attended out;
  const Tensor wide = heads_TE.to(at::kDouble);
  out.y_TC = twin.tree_attention(wide, one.segments, one.heads, {scale}, out.logsumexp_TN);
  out.dheads_TE = twin.tree_attention_backward(dy_TC.to(at::kDouble), out.y_TC, wide,
                                               out.logsumexp_TN, one.segments, one.heads, {scale});
  return out;
}

/// Level by level, merged as src/kernels/cuda/cuda_device_training.cpp does.
Attended fused(FusedAttention& attention, const TreeCase& one, const Tensor& heads_TE,
               const Tensor& dy_TC, double scale) {
  const auto levels = *attention_levels(one.segments, 0);
  const int64_t rows = heads_TE.size(0), n = one.heads.num_heads, dim = one.heads.head_dim;
  Attended out{at::zeros({rows, n * dim}, heads_TE.options()), at::zeros({rows, n}),
               at::zeros(heads_TE.sizes(), at::kDouble)};
  attention.forward(heads_TE, {}, levels[0], one.heads, scale, out.y_TC, out.logsumexp_TN);
  for (size_t i = 1; i < levels.size(); ++i) {
    const Tensor more_TC = at::zeros_like(out.y_TC), more_TN = at::full({rows, n}, -INFINITY);
    attention.forward(heads_TE, {}, levels[i], one.heads, scale, more_TC, more_TN);
    const Tensor all_TN = at::logaddexp(out.logsumexp_TN, more_TN);
    const auto part = [&](const Tensor& x_TC, const Tensor& of_TN) {
      return x_TC.view({rows, n, dim}).to(at::kFloat) * (of_TN - all_TN).exp().unsqueeze(-1);
    };
    out.y_TC = (part(out.y_TC, out.logsumexp_TN) + part(more_TC, more_TN))
                   .view({rows, n * dim})
                   .to(one.type);
    out.logsumexp_TN = all_TN;
  }
  for (const AttentionLevel& level : levels) {
    const Tensor more_TE = at::zeros_like(heads_TE);
    attention.backward(dy_TC, out.y_TC, heads_TE, out.logsumexp_TN, level, one.heads, scale,
                       more_TE);
    out.dheads_TE.add_(more_TE);
  }
  return out;
}

/// A prompt with three responses of which one has two of its own, and a lone sequence.
std::vector<Segment> tree() {
  return {{0, 37, -1},  {37, 80, 0},   {80, 81, 0},   {81, 99, 0},
          {99, 130, 3}, {130, 140, 3}, {140, 205, -1}};
}

void expect_plain(FusedAttention& attention, const TreeCase& one) {
  at::manual_seed(3);
  const int64_t rows = one.segments.back().end, dim = one.heads.head_dim;
  const double scale = 1.2 / std::sqrt(static_cast<double>(dim));
  const Tensor heads_TE =
      at::randn({rows, (one.heads.num_heads + 2 * one.heads.num_kv_heads) * dim}).to(one.type);
  const Tensor dy_TC = at::randn({rows, one.heads.num_heads * dim}).to(one.type);
  ASSERT_EQ(attention.problem(one.type, dim, at::kCPU), "");
  const Attended ours = fused(attention, one, heads_TE, dy_TC, scale),
                 exact = plain(one, heads_TE, dy_TC, scale);
  // Probabilities, results and gradients are rounded to the precision of the rows.
  const double bound = one.type == at::kHalf ? 3e-3 : 2e-2;
  EXPECT_LT(far(ours.y_TC, exact.y_TC), bound);
  EXPECT_LT(far(ours.logsumexp_TN, exact.logsumexp_TN), bound / 10);
  EXPECT_LT(far(ours.dheads_TE, exact.dheads_TE), bound);
}

const auto kNobody = [](const std::string& sentence) { ADD_FAILURE() << sentence; };

TEST(FusedAttentions, AreAsPlainOnesForPackedSequencesAndTrees) {
  FusedAttention attention(fused_functions(at::kCPU), kNobody);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    expect_plain(attention, {{4, 4, 64, 0}, type, {{0, 1, -1}, {1, 65, -1}, {65, 200, -1}}});
    expect_plain(attention, {{6, 2, 40, 0}, type, tree()});
    expect_plain(attention, {{8, 1, 128, 0}, type, tree()});
  }
}

/// What AOTriton of some versions does: the logarithm of the sum to the base of 2, both ways.
FusedFunctions to_the_base_of_two() {
  FusedFunctions functions = fused_functions(at::kCPU);
  return {[own = functions.forward](const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                    double scale) {
            FusedForward made = own(q, k, v, causal, scale);
            made.logsumexp = made.logsumexp / M_LN2;
            return made;
          },
          [own = functions.backward](const Tensor& dout, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Tensor& out, const Tensor& logsumexp,
                                     bool causal, double scale) {
            return own(dout, q, k, v, out, logsumexp * M_LN2, causal, scale);
          }};
}

TEST(FusedAttentions, FindOutTheBaseOfStatistics) {
  FusedAttention attention(to_the_base_of_two(), kNobody);
  expect_plain(attention, {{6, 2, 64, 0}, at::kBFloat16, tree()});
}

std::string told_by(FusedFunctions functions) {
  std::string told;
  FusedAttention attention(std::move(functions), [&](const std::string& it) { told += it; });
  EXPECT_NE(attention.problem(at::kBFloat16, 64, at::kCPU), "");
  attention.problem(at::kBFloat16, 64, at::kCPU);
  return told;
}

TEST(FusedAttentions, WhatALibraryGetsWrongIsToldOnceAndNotUsed) {
  const FusedFunctions right = fused_functions(at::kCPU);
  FusedFunctions sees_the_future = right, forgets_a_group = right, has_none = right;
  sees_the_future.forward = [right](const Tensor& q, const Tensor& k, const Tensor& v, bool,
                                    double scale) { return right.forward(q, k, v, false, scale); };
  forgets_a_group.backward = [right](const Tensor& dout, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Tensor& out, const Tensor& logsumexp,
                                     bool causal, double scale) {
    FusedBackward made = right.backward(dout, q, k, v, out, logsumexp, causal, scale);
    made.dk.narrow(1, 1, 1).zero_();
    return made;
  };
  has_none.forward = [](const Tensor&, const Tensor&, const Tensor&, bool, double) -> FusedForward {
    TORCH_CHECK(false, "no kernel for this processor");
  };
  EXPECT_THAT(told_by(sees_the_future),
              HasSubstr("heads of 64 in BFloat16 are attended by plain products"));
  EXPECT_THAT(told_by(sees_the_future), HasSubstr("statistics of its softmax differ"));
  EXPECT_THAT(told_by(forgets_a_group), HasSubstr("its gradients differ by"));
  EXPECT_THAT(told_by(has_none), HasSubstr("no kernel for this processor"));
}

TEST(FusedAttentions, AreForPrecisionsAndHeadsThatTheLibraryMayHave) {
  EXPECT_TRUE(FusedAttention::may_have(at::kHalf, {4, 2, 256, 0}));
  EXPECT_FALSE(FusedAttention::may_have(at::kHalf, {4, 2, 264, 0}));
  EXPECT_FALSE(FusedAttention::may_have(at::kHalf, {4, 2, 36, 0}));
  EXPECT_FALSE(FusedAttention::may_have(at::kFloat, {4, 2, 64, 0}));
}

}  // namespace
}  // namespace slime::kernels::hip
