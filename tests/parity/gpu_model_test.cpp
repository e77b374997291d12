/// Golden models with experts, and with latent attention, as the trainer computes them on a GPU: log-probs, loss and gradients
/// of the reference implementation, in float32 by the plain products, in bfloat16 by the fast ones.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "fixture_models.h"
#include "kernels/gpu/for_tests.h"
#include "kernels/linear_logprob.h"
#include "model/tree_attention.h"

namespace slime {
namespace {

using model::Precision;
using testing::FixtureModel;

/// On the CPU, in double.
struct Results {
  Tensor logprob_R;
  double loss = 0;
  Tensor grad_N;  // of all weights, as they lie
};

Results results_of(const FixtureModel& fixture, const Precision& precision) {
  const auto network = model::load_network(fixture.directory, precision);
  model::TokenBatch batch = testing::pack(fixture.sequences());
  const auto targets = testing::next_tokens(batch);
  batch.ids_T = batch.ids_T.to(precision.device);
  batch.positions_T = batch.positions_T.to(precision.device);
  network->weights().enable_grad();
  network->weights().zero_grad();
  at::AutoGradMode grad_mode(true);
  model::TreeAttention attention(batch);
  const Tensor hidden_TH = network->forward(batch, attention);
  const auto scores =
      kernels::linear_logprob(hidden_TH.index_select(0, targets.row_R.to(precision.device)),
                              network->head(), targets.target_R.to(precision.device), {});
  const Tensor loss = -scores.logprob_R.mean();
  torch::autograd::backward({loss}, {});
  const auto on_host = [](const Tensor& x) { return x.detach().cpu().to(at::kDouble); };
  return {on_host(scores.logprob_R), on_host(loss).item<double>(),
          on_host(network->weights().grad())};
}

/// What the reference has; gradients in the order of the weights.
Results golden(const FixtureModel& fixture) {
  Results out;
  std::vector<Tensor> parts;
  const auto sequences = fixture.sequences();
  for (size_t i = 0; i < sequences.size(); ++i)
    parts.push_back(fixture.tensors.read("seq" + std::to_string(i) + ".logprobs"));
  out.logprob_R = at::cat(parts).to(at::kDouble);
  out.loss = fixture.golden.at("loss").to_number<double>();
  const auto network = model::load_network(fixture.directory, Precision::of("float32"));
  network->weights().enable_grad();
  network->weights().zero_grad();
  const model::SafetensorsFile grads(fixture.directory / "grads.safetensors");
  for (const auto& weight : network->weights().tensors())
    model::Weights::view(network->weights().grad(), weight).copy_(grads.read(weight.name));
  out.grad_N = network->weights().grad().to(at::kDouble);
  return out;
}

double mean_difference(const Results& a, const Results& b) {
  return (a.logprob_R - b.logprob_R).abs().mean().item<double>();
}
double gradient_difference(const Results& a, const Results& b) {
  return ((a.grad_N - b.grad_N).norm() / b.grad_N.norm()).item<double>();
}

class GpuExpertModel : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuExpertModel, HasTheReferencesLogProbsLossAndGradients) {
  SLIME_NEEDS_GPU();
  SLIME_NEEDS_MODEL(GetParam());
  const FixtureModel fixture(GetParam());
  if (!std::filesystem::exists(fixture.directory / "grads.safetensors"))
    GTEST_SKIP() << "the gradients of " << GetParam() << " are not in this tree";
  const Results expected = golden(fixture),
                exact = results_of(fixture, Precision::on_gpu("float32"));
  EXPECT_LT(mean_difference(exact, expected), 3e-5);
  EXPECT_NEAR(exact.loss, expected.loss, 2e-5);
  EXPECT_LT(gradient_difference(exact, expected), 1e-4);
}

TEST_P(GpuExpertModel, InBfloat16StaysAsCloseAsTheCpuDoes) {
  SLIME_NEEDS_GPU();
  SLIME_NEEDS_MODEL(GetParam());
  const FixtureModel fixture(GetParam());
  const Results exact = results_of(fixture, Precision::of("float32")),
                rounded = results_of(
                    fixture, Precision{.weights = at::kBFloat16, .activations = at::kBFloat16}),
                fast = results_of(fixture, Precision::on_gpu("bfloat16"));
  // Another order of the sums changes single roundings, and with them now and then an expert.
  EXPECT_LT(mean_difference(fast, exact), 1.5 * mean_difference(rounded, exact));
  EXPECT_LT(gradient_difference(fast, exact), 1.5 * gradient_difference(rounded, exact));
  RecordProperty("mean_difference", std::to_string(mean_difference(fast, exact)));
  RecordProperty("mean_difference_of_the_cpu", std::to_string(mean_difference(rounded, exact)));
  RecordProperty("gradients", std::to_string(gradient_difference(fast, exact)));
  RecordProperty("gradients_of_the_cpu", std::to_string(gradient_difference(rounded, exact)));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GpuExpertModel,
                         ::testing::Values("qwen2_moe", "qwen3_moe", "deepseek_v3", "glm4_moe_lite",
                                           "kimi_k2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace slime
