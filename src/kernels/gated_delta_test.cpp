/// The chunked form of the gated delta rule, and its form of one token at a time, beside the recurrence as
/// the paper writes it.

#include "kernels/gated_delta.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/causal_conv.h"
#include "kernels/cpu/delta_step.h"

namespace slime::kernels {
namespace {

constexpr DeltaShape kShape{2, 4, 6, 5};
constexpr int64_t kTaps = 4;

Tensor unit(const Tensor& x) { return x / (x.square().sum(-1, true) + kDeltaEps).sqrt(); }

/// The recurrence, token by token and head by head; differentiable by autograd alone.
Tensor token_by_token(const DeltaTokens& in, const DeltaShape& shape,
                      const std::vector<Segment>& segments) {
  const int64_t share = shape.value_heads / shape.key_heads;
  std::vector<std::vector<Tensor>> states;  // of each segment at its end, by head
  std::vector<Tensor> rows(static_cast<size_t>(segments.back().end));
  for (const Segment& segment : segments) {
    std::vector<Tensor> state;
    for (int64_t h = 0; h < shape.value_heads; ++h) {
      state.push_back(segment.parent < 0
                          ? at::zeros({shape.key_dim, shape.value_dim}, in.mixed_TE.options())
                          : states[static_cast<size_t>(segment.parent)][static_cast<size_t>(h)]);
    }
    for (int64_t t = segment.begin; t < segment.end; ++t) {
      std::vector<Tensor> heads;
      for (int64_t h = 0; h < shape.value_heads; ++h) {
        const auto part = [&](int64_t begin, int64_t size) {
          return in.mixed_TE[t].narrow(0, begin, size);
        };
        const Tensor q = unit(part(h / share * shape.key_dim, shape.key_dim)) /
                         std::sqrt(static_cast<double>(shape.key_dim)),
                     k = unit(part(shape.keys() + h / share * shape.key_dim, shape.key_dim)),
                     v = part(2 * shape.keys() + h * shape.value_dim, shape.value_dim);
        Tensor& s = state[static_cast<size_t>(h)];
        s = s * in.decay_TN[t][h].exp();
        const Tensor written = in.rate_TN[t][h] * (v - at::matmul(k, s));
        s = s + at::outer(k, written);
        heads.push_back(at::matmul(q, s));
      }
      rows[static_cast<size_t>(t)] = at::cat(heads);
    }
    states.push_back(std::move(state));
  }
  return at::stack(rows);
}

DeltaTokens some_tokens(int64_t count, const DeltaShape& shape = kShape) {
  at::manual_seed(5);
  return {at::randn({count, shape.channels()}, at::kDouble),
          -at::rand({count, shape.value_heads}, at::kDouble) * 0.4,
          at::rand({count, shape.value_heads}, at::kDouble)};
}

DeltaPlan plan_of(const std::vector<Segment>& segments, bool have_start = false) {
  return make_delta_plan(segments, kTaps, have_start, at::kCPU);
}

double largest(const Tensor& x) { return x.abs().max().item<double>(); }

/// Outputs and gradients of both forms.
void expect_same(const std::vector<Segment>& segments) {
  DeltaTokens in = some_tokens(segments.back().end);
  for (Tensor* x : {&in.mixed_TE, &in.decay_TN, &in.rate_TN}) x->requires_grad_();
  const std::vector<Tensor> inputs{in.mixed_TE, in.decay_TN, in.rate_TN};
  const auto loss = [](const Tensor& y) {
    return (y * at::sin(at::arange(1, y.numel() + 1, y.options())).view(y.sizes())).sum();
  };
  const Tensor expected = token_by_token(in, kShape, segments),
               found = gated_delta(in, kShape, plan_of(segments));
  EXPECT_LT(largest(found - expected), 1e-12);
  const auto expected_grads = torch::autograd::grad({loss(expected)}, inputs),
             found_grads = torch::autograd::grad({loss(found)}, inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_LT(largest(found_grads[i] - expected_grads[i]), 1e-11) << i;
}

TEST(GatedDelta, IsTheRecurrenceForwardAndBackwardAtEveryLength) {
  constexpr int64_t c = kDeltaChunk;
  for (const int64_t length : {int64_t{1}, c - 1, c, c + 1, 2 * c + 7}) {
    SCOPED_TRACE(length);
    expect_same({{0, length, -1}});
  }
}

TEST(GatedDelta, StatesBeginAnewWithEachSequence) {
  expect_same({{0, 1, -1}, {1, 40, -1}, {40, 43, -1}, {43, 110, -1}});
}

TEST(GatedDelta, StatesGoOnFromParentsAndTheirGradientsComeBack) {
  expect_same({{0, 37, -1}, {37, 44, 0}, {44, 80, 0}, {80, 81, 2}, {81, 90, -1}, {90, 97, 2}});
}

TEST(GatedDelta, StaysFiniteWhereAStateIsForgottenAtOnce) {
  DeltaTokens in = some_tokens(70);
  in.decay_TN.fill_(-60);
  for (Tensor* x : {&in.mixed_TE, &in.decay_TN, &in.rate_TN})
    *x = x->to(at::kFloat).requires_grad_();
  const std::vector<Segment> segments{{0, 70, -1}};
  const Tensor out = gated_delta(in, kShape, plan_of(segments));
  EXPECT_TRUE(at::isfinite(out).all().item<bool>());
  for (const Tensor& grad :
       torch::autograd::grad({out.square().sum()}, {in.mixed_TE, in.decay_TN, in.rate_TN}))
    EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
}

/// Equal keys written in full: the inverse within a chunk is one of large cancelling powers.
TEST(GatedDelta, KeepsItsPrecisionWhereAllKeysAreEqual) {
  DeltaTokens in = some_tokens(64);
  in.mixed_TE.narrow(1, kShape.keys(), kShape.keys()).fill_(1);
  in.decay_TN.zero_();
  in.rate_TN.fill_(1);
  const std::vector<Segment> segments{{0, 64, -1}};
  const Tensor expected = token_by_token(in, kShape, segments);
  const DeltaTokens rounded{in.mixed_TE.to(at::kFloat), in.decay_TN.to(at::kFloat),
                            in.rate_TN.to(at::kFloat)};
  EXPECT_LT(largest(gated_delta(rounded, kShape, plan_of(segments)) - expected), 1e-5);
}

TEST(GatedDelta, GoesOnFromStatesThatItReturned) {
  const DeltaTokens in = some_tokens(90);
  const std::vector<Segment> whole{{0, 50, -1}, {50, 90, -1}};
  const Tensor zeros =
      at::zeros({2, kShape.value_heads, kShape.key_dim, kShape.value_dim}, at::kDouble);
  const DeltaRun all = gated_delta_from(zeros, in, kShape, plan_of(whole));
  const auto rows = [&](int64_t a, int64_t b, int64_t c, int64_t d) {
    const auto both = [&](const Tensor& x) {
      return at::cat({x.slice(0, a, b), x.slice(0, c, d)});
    };
    return DeltaTokens{both(in.mixed_TE), both(in.decay_TN), both(in.rate_TN)};
  };
  const std::vector<Segment> front{{0, 33, -1}, {33, 34, -1}}, back{{0, 17, -1}, {17, 56, -1}};
  const DeltaRun first = gated_delta_from(zeros, rows(0, 33, 50, 51), kShape, plan_of(front)),
                 then = gated_delta_from(first.state_SNDV, rows(33, 50, 51, 90), kShape,
                                         plan_of(back));
  EXPECT_LT(largest(then.state_SNDV - all.state_SNDV), 1e-12);
  EXPECT_LT(largest(then.out_TC.slice(0, 0, 17) - all.out_TC.slice(0, 33, 50)), 1e-12);
  EXPECT_LT(largest(then.out_TC.slice(0, 17) - all.out_TC.slice(0, 51)), 1e-12);
}

TEST(DeltaPlan, TapsReachIntoParentsAndBeforeRoots) {
  const std::vector<Segment> segments{{0, 2, -1}, {2, 3, 0}, {3, 4, 1}, {4, 5, -1}};
  const DeltaPlan zeros = plan_of(segments), started = plan_of(segments, /*have_start=*/true);
  const auto taps = [](const DeltaPlan& plan, int64_t token) {
    const Tensor column = plan.source_JT.select(1, token).contiguous();
    return std::vector<int64_t>(column.data_ptr<int64_t>(), column.data_ptr<int64_t>() + kTaps);
  };
  EXPECT_EQ(taps(zeros, 0), (std::vector<int64_t>{5, 5, 5, 0}));
  EXPECT_EQ(taps(zeros, 3), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(taps(zeros, 4), (std::vector<int64_t>{5, 5, 5, 4}));
  // Rows 5 to 7 are what was before the first root, 8 to 10 before the second.
  EXPECT_EQ(taps(started, 1), (std::vector<int64_t>{6, 7, 0, 1}));
  EXPECT_EQ(taps(started, 2), (std::vector<int64_t>{7, 0, 1, 2}));
  EXPECT_EQ(taps(started, 4), (std::vector<int64_t>{8, 9, 10, 4}));
}

TEST(DeltaPlan, ChunksThatWaitForAsManyOthersAreALevel) {
  const DeltaPlan plan = plan_of({{0, 40, -1}, {40, 50, 0}, {50, 60, 0}, {60, 70, -1}});
  // Level 0: both roots' first chunks; 1: the rest of the first; 2: its two children.
  EXPECT_EQ(plan.level_starts, (std::vector<int64_t>{0, 2, 3, 5}));
  EXPECT_EQ(plan.last_chunks, (std::vector<int64_t>{2, 3, 4, 1}));
}

/// Convolution, then the chunked rule, and the same token by token from the states in memory.
void expect_same_step(void (*step_form)(const DeltaStep&), const DeltaShape& shape) {
  constexpr int64_t kRequests = 3, kLength = 9;
  at::manual_seed(9);
  const int64_t tokens = kRequests * kLength;
  const DeltaTokens in = some_tokens(tokens, shape);
  const Tensor mixed_TE = in.mixed_TE.to(at::kFloat), decay_TN = in.decay_TN.to(at::kFloat),
               rate_TN = in.rate_TN.to(at::kFloat),
               weight = at::randn({shape.channels(), 1, kTaps}, at::kFloat);
  std::vector<Segment> segments;
  for (int64_t r = 0; r < kRequests; ++r) segments.push_back({r * kLength, (r + 1) * kLength, -1});
  const DeltaPlan plan = plan_of(segments);
  const Tensor convolved_TE = causal_conv(mixed_TE, {weight, {}}, plan);
  const Tensor expected_TC = gated_delta({convolved_TE, decay_TN, rate_TN}, shape, plan);

  const Tensor memory = at::zeros({kRequests, delta_state_numbers(shape, kTaps)});
  std::vector<float*> states;
  for (int64_t r = 0; r < kRequests; ++r) states.push_back(memory[r].data_ptr<float>());
  const Tensor tap_JE = weight.view({-1, kTaps}).t().contiguous();
  const auto of_time = [&](const Tensor& x, int64_t t) {
    return x.view({kRequests, kLength, -1}).select(1, t).contiguous();
  };
  for (int64_t t = 0; t < kLength; ++t) {
    const Tensor mixed = of_time(mixed_TE, t), decay = of_time(decay_TN, t),
                 rate = of_time(rate_TN, t), scratch = at::empty_like(mixed),
                 out = at::empty({kRequests, shape.values()});
    step_form({shape, kTaps, tap_JE.const_data_ptr<float>(), mixed.const_data_ptr<float>(),
               decay.const_data_ptr<float>(), rate.const_data_ptr<float>(), states,
               scratch.data_ptr<float>(), out.data_ptr<float>()});
    EXPECT_LT(largest(out - of_time(expected_TC, t)), 2e-5) << "token " << t;
  }
}

TEST(DeltaStep, IsTheChunkedFormTokenByToken) {
  for (const DeltaShape& shape : {kShape, DeltaShape{1, 1, 1, 1}, DeltaShape{2, 2, 16, 24}}) {
    expect_same_step(delta_step, shape);
    expect_same_step(delta_step_portable, shape);
  }
}

}  // namespace
}  // namespace slime::kernels
