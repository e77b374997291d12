/// The gated delta rule of a GPU beside the CPU's: the engine's over states, and the trainer's in
/// chunks.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/causal_conv.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/delta_decay.h"
#include "kernels/delta_kernels.h"
#include "kernels/gated_delta.h"

namespace slime::kernels {
namespace {

constexpr int64_t kTaps = 4;

/// Sequences of a step, each with a state somewhere.
struct DeltaCase {
  DeltaShape shape;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> lengths;
  int64_t padding = 0;  // sequences without a state

  Tensor mixed_TE, decay_TN, rate_TN, conv, states_PX;  // on the CPU
  PagedBatch batch;
  std::vector<int32_t> place;

  int64_t tokens_size() const { return (kTaps - 1) * shape.channels(); }

  void build() {
    at::manual_seed(11);
    std::vector<int32_t> starts{0}, row_sequence;
    const auto count = static_cast<int64_t>(lengths.size());
    for (int64_t s = 0; s < count + padding; ++s) {
      const int64_t length = s < count ? lengths[static_cast<size_t>(s)] : 1;
      starts.push_back(starts.back() + static_cast<int32_t>(length));
      row_sequence.insert(row_sequence.end(), static_cast<size_t>(length), static_cast<int32_t>(s));
      // Places in another order than sequences, and one that nobody has.
      place.push_back(s < count ? static_cast<int32_t>(count - s) : -1);
    }
    const int64_t rows = starts.back();
    mixed_TE = numbers({rows, shape.channels()}, type);
    decay_TN = -at::rand({rows, shape.value_heads}) * 0.4;
    rate_TN = at::rand({rows, shape.value_heads});
    conv = numbers({shape.channels(), 1, kTaps}, type) * 0.5;
    states_PX = at::randn({count + 1, tokens_size() + shape.state()}) * 0.3;
    // Tokens of a state are rows of earlier steps.
    states_PX.narrow(1, 0, tokens_size()).copy_(states_PX.narrow(1, 0, tokens_size()).to(type));
    batch.query_starts = to_gpu(starts, at::kInt);
    batch.row_sequence_T = to_gpu(row_sequence, at::kInt);
    batch.state_S = to_gpu(place, at::kInt);
  }

  /// Outputs and states as the chunked form of the CPU has them, in double.
  std::pair<Tensor, Tensor> expected() const {
    const Tensor states = wide(states_PX.clone()), mixed = wide(mixed_TE);
    std::vector<Tensor> out;
    int64_t row = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const int64_t length = lengths[s];
      const DeltaPlan plan =
          make_delta_plan({{0, length, -1}}, kTaps, /*have_start=*/true, at::kCPU);
      const Tensor state = states[place[s]];
      const Tensor before = state.narrow(0, 0, tokens_size()).view({kTaps - 1, shape.channels()});
      const Tensor all = at::cat({mixed.narrow(0, row, length), before});
      const auto of_rows = [&](const Tensor& x) { return wide(x).narrow(0, row, length); };
      const DeltaRun run = gated_delta_from(
          state.narrow(0, tokens_size(), shape.state())
              .view({1, shape.value_heads, shape.key_dim, shape.value_dim}),
          {causal_conv(all, {wide(conv), {}}, plan), of_rows(decay_TN), of_rows(rate_TN)}, shape,
          plan);
      out.push_back(run.out_TC);
      const Tensor last = at::cat({before.clone(), mixed.narrow(0, row, length)});
      before.copy_(last.narrow(0, length, kTaps - 1));
      state.narrow(0, tokens_size(), shape.state()).copy_(run.state_SNDV.reshape({-1}));
      row += length;
    }
    return {at::cat(out), states};
  }

  void expect_same() {
    build();
    const Tensor states = states_PX.to(at::kCUDA);
    // Rows lie apart, as parts of a projection do.
    const Tensor wider =
        at::zeros({mixed_TE.size(0), shape.channels() + 24}, mixed_TE.options().device(at::kCUDA));
    wider.narrow(1, 8, shape.channels()).copy_(mixed_TE);
    const Tensor found = open_gpu().paged_delta(
        {.batch = &batch,
         .in = {wider.narrow(1, 8, shape.channels()), to_gpu(decay_TN), to_gpu(rate_TN)},
         .shape = shape,
         .taps = kTaps,
         .conv = to_gpu(conv),
         .states_PX = states});
    const auto [out, after] = expected();
    // Float32 sums over up to 128 numbers, and a state that is a sum over up to 150 tokens.
    EXPECT_LT(relative_error(found.narrow(0, 0, out.size(0)), out), 1e-5);
    EXPECT_LT(relative_error(states, after), 1e-5);
    EXPECT_TRUE(states.cpu()[0].equal(states_PX[0])) << "a place that no sequence has";
    if (padding == 0) return;
    const Tensor of_padding = found.narrow(0, out.size(0), padding);
    EXPECT_TRUE(of_padding.cpu().equal(at::zeros(of_padding.sizes())));
  }
};

TEST(GpuDelta, AdvancesStatesByOneTokenAsTheCpuDoes) {
  SLIME_NEEDS_GPU();
  for (const auto type : kGpuTypes) {
    for (const DeltaShape& shape : {DeltaShape{2, 4, 8, 8}, DeltaShape{2, 4, 128, 128},
                                    DeltaShape{1, 3, 100, 40}, DeltaShape{1, 1, 64, 256}}) {
      DeltaCase one;
      one.type = type;
      one.shape = shape;
      one.lengths = {1, 1, 1};
      one.padding = 2;
      one.expect_same();
    }
  }
}

TEST(GpuDelta, AdvancesStatesByPromptsAsTheCpuDoes) {
  SLIME_NEEDS_GPU();
  for (const DeltaShape& shape : {DeltaShape{2, 4, 16, 16}, DeltaShape{2, 4, 128, 128}}) {
    DeltaCase one;
    one.type = at::kBFloat16;
    one.shape = shape;
    one.lengths = {1, 2, 3, 4, 33, 1, 150};
    one.expect_same();
  }
}

/// A prompt in two parts leaves the state of the whole.
TEST(GpuDelta, GoesOnFromWhereAPromptWasCut) {
  SLIME_NEEDS_GPU();
  DeltaCase whole;
  whole.shape = {2, 4, 128, 128};
  whole.lengths = {70};
  whole.build();
  const auto run = [&](const Tensor& states, int64_t begin, int64_t end) {
    PagedBatch batch;
    batch.query_starts =
        to_gpu(std::vector<int32_t>{0, static_cast<int32_t>(end - begin)}, at::kInt);
    batch.row_sequence_T = at::zeros({end - begin}, at::TensorOptions(at::kInt).device(at::kCUDA));
    batch.state_S = to_gpu(std::vector<int32_t>{1}, at::kInt);
    const auto rows = [&](const Tensor& x) { return to_gpu(x.narrow(0, begin, end - begin)); };
    return open_gpu().paged_delta(
        {.batch = &batch,
         .in = {rows(whole.mixed_TE), rows(whole.decay_TN), rows(whole.rate_TN)},
         .shape = whole.shape,
         .taps = kTaps,
         .conv = to_gpu(whole.conv),
         .states_PX = states});
  };
  const Tensor once = whole.states_PX.to(at::kCUDA), twice = whole.states_PX.to(at::kCUDA);
  const Tensor expected = run(once, 0, 70);
  const Tensor found = at::cat({run(twice, 0, 2), run(twice, 2, 70)});
  EXPECT_TRUE(at::equal(found, expected)) << "one token after another, in the same order";
  EXPECT_TRUE(at::equal(twice, once));
}

TEST(GpuDelta, RatesAndGatedNormsAreTheCpus) {
  SLIME_NEEDS_GPU();
  at::manual_seed(6);
  constexpr int64_t kRows = 5, kHeads = 3;
  for (const auto type : kGpuTypes) {
    for (const int64_t size : {8, 100, 128, 256}) {
      // Parts of one projection.
      const Tensor parts = numbers({kRows, 2 * kHeads + kHeads * size + 7}, type) * 3;
      const Tensor a = parts.narrow(1, 1, kHeads), b = parts.narrow(1, 1 + kHeads, kHeads),
                   z = parts.narrow(1, 1 + 2 * kHeads, kHeads * size);
      const Tensor a_log = numbers({kHeads}, type), bias = numbers({kHeads}, type),
                   weight = numbers({size}, type), x = numbers({kRows, kHeads * size}, at::kFloat);
      const Tensor on_gpu = to_gpu(parts);
      const auto same_part = [&](const Tensor& part) {
        return on_gpu.narrow(1, part.storage_offset(), part.size(1));
      };
      const DeltaKernels* kernels = delta_kernels_for(on_gpu);
      ASSERT_NE(kernels, nullptr);
      const auto rates =
          kernels->delta_rates(same_part(a), same_part(b), to_gpu(a_log), to_gpu(bias));
      ASSERT_TRUE(rates.has_value());
      EXPECT_LT(
          relative_error(rates->decay_TN, log_decay(wide(a), {wide(a_log), {}}, {wide(bias), {}})),
          1e-6);
      EXPECT_LT(relative_error(rates->rate_TN, wide(b).sigmoid()), 1e-6);
      const auto normed = kernels->gated_norm(to_gpu(x), same_part(z), to_gpu(weight), 1e-6);
      ASSERT_TRUE(normed.has_value());
      EXPECT_EQ(normed->scalar_type(), type);
      const Tensor exact =
          twin().rms_norm(wide(x).view({-1, size}), wide(weight), 1e-6).view(x.sizes()) *
          at::silu(wide(z));
      EXPECT_LT(relative_error(*normed, exact), type == at::kFloat ? 1e-6 : 4e-3);
    }
  }
}

/// The trainer's chunks on a GPU: inverses instead of a triangular solution.
TEST(GpuDelta, ChunksAndTheirGradientsAreTheCpus) {
  SLIME_NEEDS_GPU();
  const DeltaShape shape{2, 4, 16, 24};
  const std::vector<Segment> segments{{0, 70, -1}, {70, 75, 0}, {75, 140, 0}, {140, 141, 1}};
  at::manual_seed(5);
  const Tensor x_TE = at::randn({141, shape.channels()}),
               conv = at::randn({shape.channels(), kTaps}),
               decay_TN = -at::rand({141, shape.value_heads}) * 0.4,
               rate_TN = at::rand({141, shape.value_heads});
  const auto run = [&](at::Device device, at::ScalarType type) {
    const auto there = [&](const Tensor& x) { return x.to(device, type).clone().requires_grad_(); };
    const DeltaPlan plan = make_delta_plan(segments, kTaps, false, device);
    const Tensor x = there(x_TE), decay = there(decay_TN), rate = there(rate_TN);
    const Param weight{conv.to(device, type), at::zeros(conv.sizes(), x.options())};
    at::AutoGradMode grad_mode(true);
    const Tensor out = gated_delta({causal_conv(x, weight, plan), decay, rate}, shape, plan);
    const Tensor weights =
        at::sin(at::arange(1, out.numel() + 1, at::TensorOptions(at::kDouble))).view(out.sizes());
    auto results =
        torch::autograd::grad({(out * weights.to(device, type)).sum()}, {x, decay, rate});
    results.push_back(weight.grad);
    results.push_back(out.detach());
    return results;
  };
  const auto exact = run(at::kCPU, at::kDouble), found = run(at::kCUDA, at::kFloat);
  for (size_t i = 0; i < exact.size(); ++i)
    EXPECT_LT(relative_error(found[i], exact[i]), 1e-5) << i;
}

}  // namespace
}  // namespace slime::kernels
