/// Training arithmetic of everything but attention: a row has the same bits alone and among others.

#include <ATen/ATen.h>

#include <random>

#include "kernels/cuda/gpu_test_tensors.h"

namespace slime::kernels {
namespace {

struct ExactProduct {
  const char* name;
  int64_t outputs, inputs;
  bool has_float_result = false;
  bool has_bias = false;
};

/// Shapes of bench/gpu/workloads.json, small ones, and one whose rows are not whole tiles of anything.
const ExactProduct kExactProducts[] = {
    {"qkv-0.6b", 4096, 1024},
    {"output-0.6b", 1024, 2048},
    {"gate_up-0.6b", 6144, 1024},
    {"down-0.6b", 1024, 3072},
    {"head-0.6b", 151936, 1024, true},
    {"qkv-4b", 6144, 2560},
    {"output-4b", 2560, 4096},
    {"gate_up-4b", 19456, 2560},
    {"down-4b", 2560, 9728},
    {"gate_up-8b", 24576, 4096},
    {"down-8b", 4096, 12288},
    {"qkv-qwen2-7b", 4608, 3584, false, true},
    {"tiny", 384, 256},
    {"tiny-head", 264, 128, true},
    {"ragged", 1032, 136, false, true},
};

Tensor made_on_gpu(at::IntArrayRef shape, double scale = 1) {
  return (at::randn(shape, at::TensorOptions(at::kFloat).device(at::kCUDA)) * scale)
      .to(at::kBFloat16);
}

class GpuExactProducts : public testing::TestWithParam<ExactProduct> {};

TEST_P(GpuExactProducts, GiveARowTheSameBitsAmongAnyOthers) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  const ArithmeticScope scope(gpu, Arithmetic::kTraining);
  const auto& [name, outputs, inputs, has_float_result, has_bias] = GetParam();
  const int64_t most = has_float_result && outputs > 10000 ? 1100 : 4200;
  const Tensor weight = made_on_gpu({outputs, inputs}, 0.05), x = made_on_gpu({most, inputs});
  const Tensor bias = has_bias ? made_on_gpu({outputs}) : Tensor();
  const auto multiply = [&](const Tensor& rows) {
    return has_float_result ? gpu.logits(rows, weight) : gpu.linear(rows, weight, bias);
  };
  const Tensor whole = multiply(x);
  std::mt19937 random(7);
  for (const int64_t count : {1, 2, 7, 63, 64, 65, 200, 256, 257, 1000, 1024, 1025, 4096}) {
    if (count >= most) continue;
    for (int round = 0; round < (count < 100 ? 4 : 2); ++round) {
      const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(most - count));
      EXPECT_TRUE(multiply(x.narrow(0, begin, count)).equal(whole.narrow(0, begin, count)))
          << name << ": rows " << begin << " .. " << begin + count - 1;
    }
  }
  const Tensor order = at::randperm(most, at::TensorOptions(at::kLong).device(at::kCUDA));
  EXPECT_TRUE(multiply(x.index_select(0, order)).equal(whole.index_select(0, order)))
      << name << ": in another order";
  EXPECT_TRUE(multiply(x).equal(whole)) << name << ": a second time";
}

TEST_P(GpuExactProducts, AreTheSameProducts) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  const auto& [name, outputs, inputs, has_float_result, has_bias] = GetParam();
  const Tensor weight = made_on_gpu({outputs, inputs}, 0.05);
  const Tensor bias = has_bias ? made_on_gpu({outputs}) : Tensor();
  for (const int64_t count : {1, 100, 700, 1100}) {
    const Tensor x = made_on_gpu({count, inputs});
    const Tensor exact = [&] {
      const ArithmeticScope scope(gpu, Arithmetic::kTraining);
      return has_float_result ? gpu.logits(x, weight) : gpu.linear(x, weight, bias);
    }();
    const Tensor product = at::mm(x.to(at::kFloat), weight.to(at::kFloat).t());
    const Tensor expected = has_bias ? product + bias.to(at::kFloat) : product;
    EXPECT_LT(relative_error(exact, expected), has_float_result ? 1e-3 : 4e-3) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuExactProducts, testing::ValuesIn(kExactProducts),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name)
                             if (c == '-' || c == '.') c = '_';
                           return name;
                         });

TEST(GpuExact, GatesAreThoseOfProductAndActivation) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  const ArithmeticScope scope(gpu, Arithmetic::kTraining);
  const Tensor weight = made_on_gpu({2 * 3072, 1024}, 0.05), x = made_on_gpu({2000, 1024});
  EXPECT_TRUE(gpu.gated_linear(x, weight, {}).equal(gpu.swiglu(gpu.linear(x, weight, {}))));
  EXPECT_TRUE(gpu.gated_linear(x.narrow(0, 900, 30), weight, {})
                  .equal(gpu.gated_linear(x, weight, {}).narrow(0, 900, 30)));
}

/// In any arithmetic, since each row is a thread block's or a warp's: what training arithmetic builds on.
TEST(GpuExact, RowsOfNormsActivationsAndRotationsAreAlone) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  constexpr int64_t kRows = 1100, kHidden = 2560, kDim = 128;
  const Tensor x = made_on_gpu({kRows, kHidden}), update = made_on_gpu({kRows, kHidden}),
               weight = made_on_gpu({kHidden});
  const RotaryShape heads{16, 2, kDim, 1e-6};
  const Tensor norm = made_on_gpu({kDim});
  const auto floats = at::TensorOptions(at::kFloat).device(at::kCUDA);
  const Tensor angle = at::rand({kRows, kDim / 2}, floats) * 6, cos = angle.cos(),
               sin = angle.sin(), positions = at::arange(kRows, floats.dtype(at::kLong));
  const auto of = [&](int64_t begin, int64_t count) {
    const auto rows = [&](const Tensor& all) { return all.narrow(0, begin, count); };
    Tensor sum;
    const Tensor normed = gpu.add_rms_norm(rows(x), rows(update), weight, 1e-6, sum);
    // The sum alone, normed, as blocks that are computed again have it.
    EXPECT_TRUE(gpu.rms_norm(sum, weight, 1e-6).equal(normed));
    EXPECT_TRUE((rows(x) + rows(update)).equal(sum));
    return std::vector<Tensor>{
        sum, normed, gpu.swiglu(rows(x)),
        gpu.norm_rotate(rows(x), rows(positions), norm, norm, cos, sin, heads)};
  };
  const std::vector<Tensor> whole = of(0, kRows);
  for (const auto& [begin, count] :
       {std::pair<int64_t, int64_t>{0, 1}, {5, 7}, {77, 64}, {300, 257}, {99, 1000}}) {
    const std::vector<Tensor> some = of(begin, count);
    for (std::size_t i = 0; i < some.size(); ++i)
      EXPECT_TRUE(some[i].equal(whole[i].narrow(0, begin, count))) << "result " << i;
  }
}

TEST(GpuExact, LogProbsOfDrawsAreTheTrainers) {
  SLIME_NEEDS_GPU();
  Gpu& gpu = open_gpu();
  constexpr int64_t kRows = 300;
  const auto floats = at::TensorOptions(at::kFloat).device(at::kCUDA);
  for (const int64_t vocabulary : {264, 4096, 151936}) {
    for (const float temperature : {1.0F, 0.7F, 1.3F}) {
      const Tensor logits = at::randn({kRows, vocabulary}, floats) * 4;
      SampleRows rows;
      rows.uniform_R = at::rand({kRows}, floats.dtype(at::kDouble)).clamp(1e-6, 1 - 1e-6);
      rows.temperature_R = at::full({kRows}, temperature, floats);
      rows.top_p_R = at::ones({kRows}, floats);
      rows.min_p_R = at::zeros({kRows}, floats);
      rows.top_k_R = at::full({kRows}, -1, floats.dtype(at::kInt));
      const Tensor token = at::empty({kRows}, floats.dtype(at::kInt)),
                   log_prob = at::empty({kRows}, floats);
      gpu.sample(logits.clone(), rows, {token, log_prob, {}});
      Tensor trained = at::empty({kRows}, floats), entropy = at::empty_like(trained),
             logsumexp = at::empty_like(trained);
      gpu.device().softmax_statistics(logits, token.to(at::kLong), temperature, trained, entropy,
                                      logsumexp);
      EXPECT_TRUE(trained.equal(log_prob)) << vocabulary << " at " << temperature;
    }
  }
}

}  // namespace
}  // namespace slime::kernels
