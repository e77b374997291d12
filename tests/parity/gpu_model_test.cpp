/// Golden models as the trainer computes them on a GPU: log-probs, loss and gradients of the reference
/// implementation, in float32 by the plain products, in bfloat16 by the fast ones.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "fixture_models.h"
#include "kernels/gpu/for_tests.h"
#include "model/router_pass.h"
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

/// `choices_YTK`: whom routers visit (testing::golden_experts); undefined: they are free.
Results results_of(const FixtureModel& fixture, const Precision& precision,
                   const Tensor& choices_YTK = {}) {
  const auto network = model::load_network(fixture.directory, precision);
  model::TokenBatch batch = testing::pack(fixture.sequences());
  const auto targets = testing::next_tokens(batch);
  batch.ids_T = batch.ids_T.to(precision.device);
  batch.rotary_row_T = batch.rotary_row_T.to(precision.device);
  model::RouterPass routers;
  if (choices_YTK.defined()) {
    routers.num_rows = batch.num_tokens();
    routers.given_YTK = choices_YTK.to(precision.device);
    batch.routers = &routers;
  }
  network->weights().enable_grad();
  network->weights().zero_grad();
  at::AutoGradMode grad_mode(true);
  model::TreeAttention attention(batch);
  const Tensor hidden_TH = network->forward(batch, attention);
  const auto scores =
      network->log_probs(hidden_TH.index_select(0, targets.row_R.to(precision.device)),
                         targets.target_R.to(precision.device), {});
  const Tensor loss = -scores.logprob_R.mean();
  torch::autograd::backward({loss}, {});
  const auto on_host = [](const Tensor& x) { return x.detach().cpu().to(at::kDouble); };
  return {on_host(scores.logprob_R), on_host(loss).item<double>(),
          on_host(network->weights().grad())};
}

/// What the reference has. Gradients are the CPU's, which model_parity_test.cpp compares with the
/// reference's.
Results golden(const FixtureModel& fixture) {
  Results out;
  std::vector<Tensor> parts;
  const auto sequences = fixture.sequences();
  for (size_t i = 0; i < sequences.size(); ++i)
    parts.push_back(fixture.tensors.read("seq" + std::to_string(i) + ".logprobs"));
  out.logprob_R = at::cat(parts).to(at::kDouble);
  out.loss = fixture.golden.at("loss").to_number<double>();
  out.grad_N = results_of(fixture, Precision::of("float32")).grad_N;
  return out;
}

double mean_difference(const Results& a, const Results& b) {
  return (a.logprob_R - b.logprob_R).abs().mean().item<double>();
}
double gradient_difference(const Results& a, const Results& b) {
  return ((a.grad_N - b.grad_N).norm() / b.grad_N.norm()).item<double>();
}

class GpuModel : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuModel, HasTheReferencesLogProbsLossAndGradients) {
  SLIME_NEEDS_GPU();
  const FixtureModel fixture(GetParam());
  const Results expected = golden(fixture),
                exact = results_of(fixture, Precision::on_gpu("float32"));
  const bool has_states = testing::has_states(GetParam());
  EXPECT_LT(mean_difference(exact, expected), has_states ? 1e-4 : 3e-5);
  EXPECT_NEAR(exact.loss, expected.loss, 2e-5);
  EXPECT_LT(gradient_difference(exact, expected), has_states ? 1e-3 : 1e-4);
  RecordProperty("mean_difference", std::to_string(mean_difference(exact, expected)));
  RecordProperty("gradients", std::to_string(gradient_difference(exact, expected)));
}

/// Routers that are free now and then choose another expert where roundings differ: whom they visit is
/// the reference's choice.
TEST_P(GpuModel, InBfloat16StaysAsCloseAsTheCpuDoes) {
  SLIME_NEEDS_GPU();
  const FixtureModel fixture(GetParam());
  const model::ModelConfig config = model::read_model_config(fixture.directory);
  const Tensor choices_YTK =
      config.has_experts() ? testing::golden_experts(fixture, config) : Tensor();
  const auto results = [&](const Precision& precision) {
    return results_of(fixture, precision, choices_YTK);
  };
  const Results exact = results(Precision::of("float32")),
                rounded = results({.weights = at::kBFloat16, .activations = at::kBFloat16}),
                fast = results(Precision::on_gpu("bfloat16"));
  // Another order of the sums changes single roundings.
  EXPECT_LT(mean_difference(fast, exact), 1.5 * mean_difference(rounded, exact));
  EXPECT_LT(gradient_difference(fast, exact), 1.5 * gradient_difference(rounded, exact));
  RecordProperty("mean_difference", std::to_string(mean_difference(fast, exact)));
  RecordProperty("mean_difference_of_the_cpu", std::to_string(mean_difference(rounded, exact)));
  RecordProperty("gradients", std::to_string(gradient_difference(fast, exact)));
  RecordProperty("gradients_of_the_cpu", std::to_string(gradient_difference(rounded, exact)));
}

INSTANTIATE_TEST_SUITE_P(Models, GpuModel, ::testing::ValuesIn(golden_models::all()),
                         golden_models::name_of);

}  // namespace
}  // namespace slime
