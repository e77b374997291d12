// The sources of GPU kernels, run by the block executor, against the kernels of the CPU.
#define SLIME_KERNELS_ON_CPU

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/block_executor/block_executor.h"
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/reference.h"
#include "kernels/cpu/sample.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/training/adamw.h"
#include "kernels/cuda/training/rows_backward.h"

namespace slime::kernels::cuda {
namespace {

const cpu::ReferenceDevice& reference() {
  static const cpu::ReferenceDevice device;
  return device;
}

Number to_number(at::ScalarType type) {
  return type == at::kFloat      ? Number::kFloat32
         : type == at::kBFloat16 ? Number::kBFloat16
                                 : Number::kFloat16;
}

/// The largest difference, as a share of the largest number.
double difference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return (x - y).abs().max().item<double>() / y.abs().max().item<double>();
}
/// One rounding to the precision and, where the twin rounds elsewhere, another.
double bound(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kBFloat16 ? 1.0 / 128 : 1.0 / 1024;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

class KernelsOnCpu : public testing::TestWithParam<BlockExecutor::Options> {
 protected:
  KernelsOnCpu() : executor_(GetParam()) { at::manual_seed(7); }
  BlockExecutor executor_;
};

std::string name_of(const testing::TestParamInfo<BlockExecutor::Options>& info) {
  return std::to_string(info.param.wave_lanes) + (info.param.is_descending ? "Down" : "Up");
}
INSTANTIATE_TEST_SUITE_P(Waves, KernelsOnCpu,
                         testing::Values(BlockExecutor::Options{32, false},
                                         BlockExecutor::Options{64, true}),
                         name_of);

struct Normed {
  Tensor sum, out;
};
Normed add_rms_norm_on(BlockExecutor& executor, const Tensor& x, const Tensor& update,
                       const Tensor& weight) {
  Normed made{at::empty_like(x), at::empty_like(x)};
  add_rms_norm(to_number(x.scalar_type()), x.data_ptr(), update.data_ptr(), weight.data_ptr(),
               to_number(weight.scalar_type()), made.sum.data_ptr(), made.out.data_ptr(), x.size(0),
               x.size(1), 1e-6F, &executor);
  return made;
}

TEST_P(KernelsOnCpu, NormsOfRows) {
  for (const auto type : kTypes) {
    // One pack of one thread, a warp less a lane, several warps, and more packs than threads.
    for (const int64_t hidden : {8, 248, 1032, 9216}) {
      const Tensor x = at::randn({2, hidden}).to(type), update = at::randn({2, hidden}).to(type);
      const Tensor weight = at::randn({hidden}).to(type);
      const Normed made = add_rms_norm_on(executor_, x, update, weight);
      const Tensor sum = x.clone();
      const Tensor out = reference().add_rms_norm_(sum, update, weight, 1e-6);
      EXPECT_TRUE(at::equal(made.sum, sum)) << type << hidden;
      EXPECT_LT(difference(made.out, out), bound(type)) << type << hidden;
    }
  }
}

TEST_P(KernelsOnCpu, AGatedActivationAndAnEmbedding) {
  for (const auto type : kTypes) {
    const Tensor gate_up = 3 * at::randn({3, 2 * 136});
    const Tensor made = at::empty({3, 136}, type), rows = gate_up.to(type);
    swiglu(to_number(type), rows.data_ptr(), made.data_ptr(), 3, 136, &executor_);
    EXPECT_LT(difference(made, reference().swiglu(rows)), bound(type)) << type;
    const Tensor ids = at::tensor({int64_t{4}, int64_t{0}, int64_t{4}});
    const Tensor table = at::randn({5, 264}).to(type), taken = at::empty({3, 264}, type);
    embedding(to_number(type), ids.data_ptr<int64_t>(), table.data_ptr(), taken.data_ptr(), 3, 264,
              &executor_);
    EXPECT_TRUE(at::equal(taken, table.index({ids})));
  }
}

TEST_P(KernelsOnCpu, AdamW) {
  for (const auto type : kTypes) {
    const Tensor master = at::randn({1027}), grad = at::randn({1027});
    const Tensor first = 0.1 * at::randn({1027}), second = 0.01 * at::rand({1027});
    const bool has_copy = type != at::kFloat;
    const AdamStep step{
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.98, .weight_decay = 0.1, .grad_scale = 0.5, .step = 3};
    const Tensor our_master = master.clone(), our_first = first.clone(),
                 our_second = second.clone();
    const Tensor ours = has_copy ? at::zeros({1027}, type) : our_master;
    AdamWCall call;
    call.number = to_number(type);
    call.weights_N = ours.data_ptr();
    call.master_N = our_master.data_ptr<float>();
    call.first_moment_N = our_first.data_ptr<float>();
    call.second_moment_N = our_second.data_ptr<float>();
    call.grad_N = grad.data_ptr<float>();
    call.count = 1027;
    call.beta1 = 0.9F, call.beta2 = 0.98F, call.eps = 1e-8F, call.grad_scale = 0.5F;
    call.decay = static_cast<float>(1 - step.lr * step.weight_decay);
    call.step_size = static_cast<float>(step.lr / (1 - std::pow(step.beta1, 3)));
    call.inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, 3)));
    adamw(call, &executor_);
    const Tensor weights = has_copy ? master.to(type) : master;
    const AdamRange whole[] = {{0, 1027, true}};
    cpu::adamw_(weights, master, first, second, grad, whole, step);
    EXPECT_LT(difference(our_master, master), 2e-6);
    EXPECT_LT(difference(our_first, first), 2e-6);
    EXPECT_LT(difference(our_second, second), 2e-6);
    EXPECT_LT(difference(ours, weights), bound(type));
  }
}

TEST(KernelsOnCpuOnce, SumsOfSquares) {
  BlockExecutor executor({.wave_lanes = 64});
  const Tensor x = at::randn({70003}), sums = at::empty({kSquareSums}, at::kDouble);
  sums_of_squares(x.data_ptr<float>(), x.numel(), sums.data_ptr<double>(), &executor);
  const double expected = cpu::sum_of_squares(x);
  EXPECT_NEAR(sums.sum().item<double>(), expected, 1e-9 * expected);
}

TEST_P(KernelsOnCpu, StatisticsAndGradientOfASoftmax) {
  constexpr int64_t kRows = 3, kVocabulary = 5003;  // two chunks, the last one ragged
  const double temperature = 0.7;
  const Tensor logits = 4 * at::randn({kRows, kVocabulary});
  const Tensor target = at::tensor({int64_t{0}, int64_t{4999}, int64_t{77}});
  std::vector<ChunkSums> sums(kRows * sample_chunks(kVocabulary));
  Tensor ours[3], twins[3];  // log-prob, entropy, logsumexp
  for (int i = 0; i < 3; ++i) ours[i] = at::empty({kRows}), twins[i] = at::empty({kRows});
  SoftmaxCall call;
  call.logits_RV = logits.data_ptr<float>();
  call.target_R = target.data_ptr<int64_t>();
  call.temperature = static_cast<float>(temperature);
  call.sums_RC = sums.data();
  call.logprob_R = ours[0].data_ptr<float>();
  call.entropy_R = ours[1].data_ptr<float>();
  call.logsumexp_R = ours[2].data_ptr<float>();
  call.rows = kRows, call.vocabulary = kVocabulary;
  softmax_statistics(call, &executor_);
  reference().softmax_statistics(logits, target, temperature, twins[0], twins[1], twins[2]);
  // The twin adds up in float32, so entropies are compared with those of double precision.
  const Tensor log_p = (logits.to(at::kDouble) / temperature).log_softmax(1);
  EXPECT_LT(difference(ours[0], twins[0]), 2e-6);
  EXPECT_LT(difference(ours[1], -(log_p.exp() * log_p).sum(1)), 2e-6);
  EXPECT_LT(difference(ours[2], twins[2]), 2e-6);

  const Tensor dlogprob = at::randn({kRows}), dentropy = at::randn({kRows});
  const Tensor dlogits = at::empty_like(logits);
  SoftmaxBackwardCall back;
  back.logits_RV = logits.data_ptr<float>();
  back.target_R = target.data_ptr<int64_t>();
  back.logsumexp_R = twins[2].data_ptr<float>();
  back.entropy_R = twins[1].data_ptr<float>();
  back.dlogprob_R = dlogprob.data_ptr<float>();
  back.dentropy_R = dentropy.data_ptr<float>();
  back.dlogits_RV = dlogits.data_ptr();
  back.number = Number::kFloat32;
  back.temperature = static_cast<float>(temperature);
  back.rows = kRows, back.vocabulary = kVocabulary;
  softmax_backward(back, &executor_);
  const Tensor twin = logits.clone();
  reference().softmax_backward_(twin, target, temperature, twins[2], twins[1], dlogprob, dentropy);
  EXPECT_LT(difference(dlogits, twin), 1e-5);
}

struct Drawn {
  std::vector<int32_t> token;
  std::vector<float> log_prob;
};
/// Row r with options[r].
Drawn sample_on(BlockExecutor& executor, const Tensor& logits,
                const std::vector<SampleOptions>& options) {
  const int64_t rows = logits.size(0), vocab = logits.size(1), chunks = sample_chunks(vocab);
  const auto of_rows = [&](auto of) {
    std::vector<std::decay_t<decltype(of(options[0]))>> made;
    for (const SampleOptions& o : options) made.push_back(of(o));
    return made;
  };
  const auto uniform = of_rows([](const SampleOptions& o) { return o.uniform; });
  const auto temperature =
      of_rows([](const SampleOptions& o) { return static_cast<float>(o.temperature); });
  const auto top_p = of_rows([](const SampleOptions& o) { return static_cast<float>(o.top_p); });
  const auto min_p = of_rows([](const SampleOptions& o) { return static_cast<float>(o.min_p); });
  const auto top_k =
      of_rows([](const SampleOptions& o) { return static_cast<int32_t>(o.greedy ? 0 : o.top_k); });
  std::vector<float> chunk_max(rows * chunks), chunk_sum(rows * chunks);
  std::vector<int32_t> chunk_argmax(rows * chunks), num_kept(rows);
  std::vector<MeasuredRow> measured(rows);
  std::vector<unsigned long long> mass(rows * kSampleBuckets);
  std::vector<uint32_t> count(rows * kSampleBuckets);
  Drawn drawn{std::vector<int32_t>(rows), std::vector<float>(rows)};
  SampleCall call;
  call.logits_RV = logits.data_ptr<float>();
  call.rows = rows, call.vocab = vocab;
  call.uniform_R = uniform.data(), call.temperature_R = temperature.data();
  call.top_p_R = top_p.data(), call.min_p_R = min_p.data(), call.top_k_R = top_k.data();
  call.chunk_max_RC = chunk_max.data(), call.chunk_sum_RC = chunk_sum.data();
  call.chunk_argmax_RC = chunk_argmax.data(), call.measured_R = measured.data();
  call.bucket_mass_RB = mass.data(), call.bucket_count_RB = count.data();
  call.token_R = drawn.token.data(), call.log_prob_R = drawn.log_prob.data();
  call.num_kept_R = num_kept.data();
  sample(call, &executor);
  return drawn;
}

const std::vector<SampleOptions> kDraws = {
    {.greedy = true},
    {.temperature = 0.8, .uniform = 0.001},
    {.uniform = 0.999},
    {.top_k = 5, .uniform = 0.6},
    {.temperature = 1.3, .top_p = 0.8, .uniform = 0.77},
    {.min_p = 0.05, .uniform = 0.4},
    {.top_k = 3000, .top_p = 0.95, .uniform = 0.97},
};

TEST_P(KernelsOnCpu, DrawsOfTokens) {
  const Tensor logits = 3 * at::randn({static_cast<int64_t>(kDraws.size()), 5003});
  const Drawn ours = sample_on(executor_, logits, kDraws);
  for (size_t r = 0; r < kDraws.size(); ++r) {
    const SampledToken twin =
        sample_row({logits[static_cast<int64_t>(r)].data_ptr<float>(), 5003}, kDraws[r]);
    EXPECT_EQ(ours.token[r], twin.id) << r;
    EXPECT_NEAR(ours.log_prob[r], twin.log_prob, 1e-5) << r;
  }
}

// A shuffle from the wrong lane, as a port might have it, must not pass the tests above.

TEST(KernelsOnCpuWithAMistake, NormsDiffer) {
  BlockExecutor mistaken({.mistaken_distance = 16});
  const Tensor x = at::randn({2, 1032}), update = at::randn({2, 1032}), weight = at::randn({1032});
  const Tensor out = reference().add_rms_norm_(x.clone(), update, weight, 1e-6);
  EXPECT_GT(difference(add_rms_norm_on(mistaken, x, update, weight).out, out),
            100 * bound(at::kFloat));
}

TEST(KernelsOnCpuWithAMistake, DrawsDiffer) {
  BlockExecutor mistaken({.wave_lanes = 64, .mistaken_distance = 8});
  at::manual_seed(7);
  const Tensor logits = 3 * at::randn({static_cast<int64_t>(kDraws.size()), 5003});
  const Drawn ours = sample_on(mistaken, logits, kDraws);
  int different = 0;
  for (size_t r = 0; r < kDraws.size(); ++r) {
    const SampledToken twin =
        sample_row({logits[static_cast<int64_t>(r)].data_ptr<float>(), 5003}, kDraws[r]);
    different += ours.token[r] != twin.id || std::abs(ours.log_prob[r] - twin.log_prob) > 1e-5;
  }
  EXPECT_GT(different, 0);
}

}  // namespace
}  // namespace slime::kernels::cuda
