#include "kernels/cpu/delta_runs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/causal_conv.h"
#include "kernels/cpu/delta_step.h"
#include "kernels/param.h"
#include "kernels/with_value.h"

namespace slime::kernels {
namespace {

constexpr DeltaShape kRunShape{2, 4, 8, 16};
constexpr int64_t kRunTaps = 4;

struct RunInput {
  DeltaTokens in;
  Tensor conv_E1J;

  explicit RunInput(int64_t tokens) {
    at::manual_seed(5);
    in = {at::randn({tokens, kRunShape.channels()}), -at::rand({tokens, kRunShape.value_heads}),
          at::rand({tokens, kRunShape.value_heads})};
    conv_E1J = at::randn({kRunShape.channels(), 1, kRunTaps}) * 0.5;
  }
};

TEST(DeltaRuns, SegmentsTokenByTokenAreTheRuleOfChunks) {
  const RunInput x(150);
  const std::vector<Segment> segments{
      {0, 70, -1}, {70, 75, 0}, {75, 130, 0}, {130, 131, 2}, {131, 150, -1}};
  const DeltaPlan plan = make_delta_plan(segments, kRunTaps, /*have_start=*/false, at::kCPU);
  const Param conv{x.conv_E1J, {}};
  const Tensor chunks = gated_delta(
      {causal_conv(x.in.mixed_TE, conv, plan), x.in.decay_TN, x.in.rate_TN}, kRunShape, plan);
  const Tensor tokens = delta_segments_by_token(x.in, x.conv_E1J, kRunShape, segments);
  EXPECT_LT((tokens - chunks).abs().max().item<double>(), 1e-4);
}

TEST(DeltaRuns, ARunInPiecesHasTheBitsOfTheWhole) {
  const RunInput x(60);
  const auto numbers = static_cast<std::size_t>(delta_state_numbers(kRunShape, kRunTaps));
  std::vector<float> whole(numbers), pieces(numbers), other(numbers);
  const std::vector<DeltaRunRows> one{{0, 60, whole.data()}};
  const Tensor expected = delta_runs(x.in, x.conv_E1J, kRunShape, one);
  const std::vector<DeltaRunRows> first{{0, 17, pieces.data()}, {30, 5, other.data()}};
  const std::vector<DeltaRunRows> rest{{17, 43, pieces.data()}};
  const Tensor begin = delta_runs(x.in, x.conv_E1J, kRunShape, first);
  const Tensor end = delta_runs(x.in, x.conv_E1J, kRunShape, rest);
  EXPECT_TRUE(begin.narrow(0, 0, 17).equal(expected.narrow(0, 0, 17)));
  EXPECT_TRUE(end.narrow(0, 17, 43).equal(expected.narrow(0, 17, 43)));
  EXPECT_EQ(pieces, whole);
}

TEST(WithValue, HasTheNumbersOfOneAndTheGradientOfTheOther) {
  const Tensor x = at::full({3}, 2.0F).requires_grad_();
  const Tensor out = with_value(x * x, at::tensor({4.5F, 4.25F, 4.125F}));
  EXPECT_TRUE(out.detach().equal(at::tensor({4.5F, 4.25F, 4.125F})));
  (out * at::tensor({1.0F, 2.0F, 3.0F})).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::tensor({4.0F, 8.0F, 12.0F})));
}

}  // namespace
}  // namespace slime::kernels
