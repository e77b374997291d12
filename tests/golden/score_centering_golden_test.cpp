// Score centering from logits to loss and gradient: the vectors of shared/spec/golden/score_centering.txt (made by
// score_centering.py there, finite differences in float64), zero expected gradient, and supports of one token.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algo/loss.h"
#include "kernels/linear_logprob.h"

namespace slime::golden {
namespace {

using namespace algo;

constexpr double kTemperature = 0.8, kAdvantage = 1.5, kLow = 0.4, kHigh = 1.6;

/// The sampler at the one position: what it lists, what it drew and with which probability.
struct Drawn {
  bool lists_support;
  std::vector<int64_t> ids;
  std::vector<double> probabilities;
  int64_t token;
  double probability;
};
const Drawn kExact{true, {0, 2, 3}, {0.1, 0.3, 0.6}, 3, 0.6};
const Drawn kHead{false, {0, 3}, {0.2, 0.5}, 2, 0.25};

std::optional<MismatchCorrection> correction_of(const std::string& mode) {
  if (mode == "tis") return TruncatedImportance{kLow, kHigh};
  if (mode == "mis") return DroppedImportance{kLow, kHigh};
  return std::nullopt;
}

struct Result {
  double loss = 0;
  MetricSums metrics;
  Tensor gradient;  // of the logits
};

/// The logits come out of an output layer that is the identity.
Result loss_of(const Drawn& drawn, const std::string& mode, at::ScalarType dtype,
               const std::vector<double>& values = {1, -2, 0.3, 0.8},
               double advantage = kAdvantage) {
  const auto floats = at::TensorOptions(dtype);
  const Tensor logits = at::tensor(values, floats).unsqueeze(0).requires_grad_();
  const auto vocabulary = static_cast<int64_t>(values.size());
  const kernels::MatrixParam head(kernels::Param{at::eye(vocabulary, floats), {}});
  const kernels::KeptTokens listed{at::tensor(drawn.ids, at::kLong),
                                   at::tensor({int64_t{0}, int64_t(drawn.ids.size())}, at::kLong)};
  kernels::LinearLogProbOptions options{.temperature = kTemperature};
  options.listed_tokens = listed;
  if (drawn.lists_support) options.kept_tokens = listed;
  const kernels::LogProbs scores =
      kernels::linear_logprob(logits, head, at::tensor({drawn.token}, at::kLong), options);

  PolicyLossConfig config;
  config.objective = Reinforce{};
  config.correction = correction_of(mode);
  config.centering = ScoreCentering{drawn.lists_support, int64_t(drawn.ids.size())};
  PolicyColumns in;
  in.logprob_T = scores.logprob_R;
  in.entropy_T = scores.entropy_R;
  in.engine_T = at::tensor({std::log(drawn.probability)}, floats);
  in.listed = {scores.listed_A, at::tensor(drawn.probabilities, floats).log(), listed.offsets};
  in.advantage_T = at::tensor({advantage}, floats);
  in.trained_T = at::ones({1}, at::kBool);
  in.weight_T = at::ones({1}, floats);
  in.starts = at::tensor({int64_t{0}, int64_t{1}}, at::kLong);
  const Loss loss = policy_loss(config, in);
  loss.sum.backward();
  return {loss.sum.item<double>(), loss.metrics, logits.grad()[0].clone()};
}

struct Vector {
  const Drawn& drawn;
  const char* mode;
  double loss, correction, weight, sampler_mass, trainer_mass;
  std::vector<double> gradient;
};

const Vector kVectors[] = {
    {kExact,
     "none",
     -0.243750,
     -1.198984,
     1.000000,
     1.0000,
     1.000000,
     {0.187500, 0.000000, 0.562500, -0.750000}},
    {kHead,
     "none",
     3.131591,
     0.415589,
     1.000000,
     0.7000,
     0.801557,
     {0.375000, 0.030039, -1.342539, 0.937500}},
    {kExact,
     "tis",
     -0.294282,
     -0.808922,
     0.591166,
     1.0000,
     1.000000,
     {0.203169, 0.000000, 0.315617, -0.518786}},
    {kHead,
     "tis",
     2.040796,
     0.104120,
     0.751380,
     0.7000,
     0.801557,
     {0.500298, 0.017526, -1.098190, 0.580366}},
    {kExact,
     "mis",
     -0.105526,
     -0.683085,
     0.591166,
     1.0000,
     1.000000,
     {0.039802, 0.000000, 0.372574, -0.412376}},
    {kHead,
     "mis",
     2.423422,
     0.359204,
     0.751380,
     0.7000,
     0.801557,
     {0.170668, 0.023884, -0.985483, 0.790931}},
};

TEST(ScoreCentering, HasTheLossAndGradientOfTheVectors) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const Vector& expected : kVectors) {
      SCOPED_TRACE(std::string(expected.mode) +
                   (expected.drawn.lists_support ? " exact" : " head"));
      const Result result = loss_of(expected.drawn, expected.mode, dtype);
      constexpr double kTolerance = 2e-6;  // float32; the vectors have six digits
      EXPECT_NEAR(result.loss, expected.loss, kTolerance);
      EXPECT_NEAR(result.metrics.at("sc_correction"), expected.correction, kTolerance);
      EXPECT_NEAR(result.metrics.at("sc_importance_weight"), expected.weight, kTolerance);
      EXPECT_NEAR(result.metrics.at("sc_sampler_head_mass"), expected.sampler_mass, kTolerance);
      EXPECT_NEAR(result.metrics.at("sc_train_head_mass"), expected.trainer_mass, kTolerance);
      for (int64_t v = 0; v < 4; ++v)
        EXPECT_NEAR(result.gradient[v].item<double>(), expected.gradient[v], kTolerance) << v;
    }
  }
}

TEST(ScoreCentering, LeavesNoGradientOnAverageOverWhatTheSamplerDraws) {
  for (const char* mode : {"none", "tis", "mis"}) {
    Tensor mean = at::zeros({4}, at::kDouble);
    for (std::size_t i = 0; i < kExact.ids.size(); ++i) {
      Drawn drawn = kExact;
      drawn.token = kExact.ids[i];
      drawn.probability = kExact.probabilities[i];
      mean += drawn.probability * loss_of(drawn, mode, at::kDouble).gradient;
    }
    EXPECT_LT(mean.abs().max().item<double>(), 1e-14) << mode;
  }
}

TEST(ScoreCentering, OfAHeadOfAllLeavesNoneEither) {
  // The rest is empty, so nothing about it is guessed.
  const Drawn all{false, {0, 1, 2, 3}, {0.1, 0.2, 0.3, 0.4}, 0, 0.1};
  Tensor mean = at::zeros({4}, at::kDouble);
  for (std::size_t i = 0; i < all.ids.size(); ++i) {
    Drawn drawn = all;
    drawn.token = all.ids[i];
    drawn.probability = all.probabilities[i];
    mean += drawn.probability * loss_of(drawn, "none", at::kDouble).gradient;
  }
  EXPECT_LT(mean.abs().max().item<double>(), 1e-14);
}

TEST(ScoreCentering, OfASupportOfOneTokenIsExactlyNothing) {
  const Drawn drawn{true, {2}, {1.0}, 2, 1.0};
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double scale : {1.0, 37.3, 1234.567}) {
      for (const char* mode : {"none", "tis", "mis"}) {
        const Result result =
            loss_of(drawn, mode, dtype, {1 * scale, -2 * scale, 0.3 * scale, 0.8 * scale});
        EXPECT_EQ(result.loss, 0);
        EXPECT_EQ(result.metrics.at("sc_correction"), 0);
        EXPECT_EQ(result.metrics.at("sc_train_head_mass"), 1);
        EXPECT_EQ(result.gradient.abs().max().item<double>(), 0) << mode << " " << scale;
      }
    }
  }
}

TEST(ScoreCentering, IsScaledByTheAdvantage) {
  const Result one = loss_of(kHead, "tis", at::kDouble, {1, -2, 0.3, 0.8}, 1);
  const Result other = loss_of(kHead, "tis", at::kDouble, {1, -2, 0.3, 0.8}, -3);
  EXPECT_NEAR(other.loss, -3 * one.loss, 1e-12);
  EXPECT_EQ(other.metrics.at("sc_correction"), one.metrics.at("sc_correction"));
}

}  // namespace
}  // namespace slime::golden
