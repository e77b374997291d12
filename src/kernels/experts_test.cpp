// Experts against the sum written out, token by token.

#include "kernels/experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "kernels/cpu/processor.h"

namespace slime::kernels {
namespace {

std::vector<int64_t> to_vector(const Tensor& x) {
  return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
}

TEST(ExpertVisits, PutTheTokensOfAnExpertTogether) {
  const ExpertVisits visits = group_by_expert(at::tensor({2, 0, 0, 1}, at::kLong).view({2, 2}), 4);
  EXPECT_EQ(visits.starts.host, (std::vector<int64_t>{0, 2, 3, 4, 4}));
  EXPECT_EQ(to_vector(visits.token_S), (std::vector<int64_t>{0, 1, 1, 0}));
  EXPECT_EQ(to_vector(visits.place_TK), (std::vector<int64_t>{3, 0, 1, 2}));
  EXPECT_THROW(group_by_expert(at::tensor({4}, at::kLong).view({1, 1}), 4), BugError);
  EXPECT_THROW(group_by_expert(at::tensor({-1}, at::kLong).view({1, 1}), 4), BugError);
}

constexpr int64_t kExperts = 5, kVisits = 2, kHidden = 24, kWidth = 16;

struct Case {
  Tensor x_TH, expert_TK, weight_TK;
  ExpertStack stack;
};

/// Expert 3 is visited by none; the distribution of the others is uneven.
Case make_case(int64_t tokens, at::ScalarType type) {
  at::manual_seed(7);
  Case c;
  const auto numbers = [&](std::vector<int64_t> shape) {
    return (at::randn(shape, at::kDouble) * 0.3).to(type);
  };
  c.x_TH = numbers({tokens, kHidden});
  const Tensor first = at::arange(tokens, at::kLong).remainder(3);
  c.expert_TK = at::stack({first, at::where(first == 1, 4, 1 + (first == 2).to(at::kLong))}, 1);
  c.weight_TK = at::rand({tokens, kVisits}, type == at::kDouble ? at::kDouble : at::kFloat);
  c.stack = {{numbers({kExperts * 2 * kWidth, kHidden}), {}},
             {numbers({kExperts * kHidden, kWidth}), {}}};
  return c;
}

Tensor run(const Case& c) {
  return experts(c.x_TH, group_by_expert(c.expert_TK, kExperts), c.weight_TK, c.stack);
}

/// In float64, whatever the case's numbers are stored in.
Tensor written_out(const Case& c) {
  const Tensor out_TH = at::zeros_like(c.x_TH, at::kDouble);
  for (int64_t t = 0; t < c.x_TH.size(0); ++t) {
    const Tensor x_H = c.x_TH[t].to(at::kDouble);
    for (int64_t k = 0; k < kVisits; ++k) {
      const auto e = c.expert_TK[t][k].item<int64_t>();
      const Tensor gate_up = c.stack.gate_up.matrix.values.narrow(0, e * 2 * kWidth, 2 * kWidth);
      const Tensor both = at::mv(gate_up.to(at::kDouble), x_H);
      const Tensor gated = at::silu(both.narrow(0, 0, kWidth)) * both.narrow(0, kWidth, kWidth);
      const Tensor down =
          c.stack.down.matrix.values.narrow(0, e * kHidden, kHidden).to(at::kDouble);
      out_TH[t].add_(at::mv(down, gated) * c.weight_TK[t][k].item<double>());
    }
  }
  return out_TH;
}

TEST(Experts, AreTheWeightedSumOfThoseThatATokenVisits) {
  for (const int64_t tokens : {1, 2, 127, 128, 129}) {
    const Case exact = make_case(tokens, at::kDouble);
    EXPECT_LT((run(exact) - written_out(exact)).abs().max().item<double>(), 1e-13);
    const Case single = make_case(tokens, at::kFloat);
    EXPECT_LT((run(single) - written_out(single)).abs().max().item<double>(), 2e-6);
    const Case half = make_case(tokens, at::kBFloat16);
    // Three roundings to 8 bits of numbers that are about one.
    EXPECT_LT((run(half) - written_out(half)).abs().max().item<double>(), 0.03);
  }
}

TEST(Experts, ATokensNumbersDoNotDependOnTheOthers) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    if (type == at::kBFloat16 && !cpu::has_tiles())
      continue;  // ATen's products make no such promise
    const Case all = make_case(130, type);
    const Tensor together = run(all);
    for (const int64_t t : {0, 1, 64, 129}) {
      Case alone = all;
      alone.x_TH = all.x_TH.narrow(0, t, 1);
      alone.expert_TK = all.expert_TK.narrow(0, t, 1);
      alone.weight_TK = all.weight_TK.narrow(0, t, 1);
      EXPECT_TRUE(run(alone)[0].equal(together[t])) << "token " << t;
    }
  }
}

TEST(Experts, RefuseWeightsOfAnotherNumberOrPrecision) {
  Case c = make_case(3, at::kFloat);
  c.weight_TK = c.weight_TK.to(at::kDouble);
  EXPECT_THROW(run(c), BugError);
  c.weight_TK = at::ones({3, 1});
  EXPECT_THROW(run(c), BugError);
}

}  // namespace
}  // namespace slime::kernels
