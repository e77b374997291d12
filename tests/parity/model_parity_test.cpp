/// The golden models: logits, hidden states, log-probs, entropies, greedy continuations, losses and
/// gradients of the reference implementation. Tolerances are those of
/// tests/fixtures/models/README.md.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <optional>

#include "fixture_models.h"
#include "kernels/linear.h"
#include "model/model_files.h"
#include "model/router_pass.h"
#include "model/save.h"
#include "model/tree_attention.h"

namespace slime {
namespace {

using testing::FixtureModel;

constexpr double kLossTolerance = 2e-5;

double logit_tolerance(const std::string& name) { return testing::has_states(name) ? 2e-3 : 3e-4; }
double gradient_tolerance(const std::string& name) {
  return testing::has_states(name) ? 1e-3 : 1e-4;
}

double max_difference(const Tensor& a, const Tensor& b) {
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

Tensor run(model::Network& network, const model::TokenBatch& batch) {
  model::TreeAttention attention(batch);
  return network.forward(batch, attention);
}

class GoldenModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { fixture_.emplace(GetParam()); }

  std::optional<FixtureModel> fixture_;
};

/// The largest difference that the logits may have from those that were stored as fractions.
double max_difference(const Tensor& logits_TV, const testing::GoldenLogits& golden) {
  const Tensor difference_TV = (logits_TV - golden.logit_TV).abs().to(at::kDouble);
  return (difference_TV + golden.rounding_T.unsqueeze(1)).max().item<double>();
}

TEST_P(GoldenModel, GivesTheReferencesLogitsLogProbsAndEntropies) {
  at::NoGradGuard no_grad;
  const auto network = model::load_network(fixture_->directory, model::Precision::of("float32"));
  const auto sequences = fixture_->sequences();
  const auto batch = testing::pack(sequences);
  const Tensor hidden_TH = run(*network, batch);
  const Tensor logits_TV = network->logits(hidden_TH);
  const auto targets = testing::next_tokens(batch);
  const auto next = at::cat({batch.ids_T.slice(0, 1), batch.ids_T.slice(0, 0, 1)});
  const auto scores = network->log_probs(hidden_TH, next, {.chunk_bytes = 10'000});
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto& segment = batch.segments[i];
    const int64_t size = segment.end - segment.begin;
    const auto golden = [&](const char* what) {
      return fixture_->tensors.read(fmt::format("seq{}.{}", i, what));
    };
    EXPECT_LT(max_difference(logits_TV.narrow(0, segment.begin, size),
                             fixture_->logits(fmt::format("seq{}", i))),
              logit_tolerance(GetParam()));
    EXPECT_LT(
        max_difference(scores.logprob_R.narrow(0, segment.begin, size - 1), golden("logprobs")),
        testing::log_prob_tolerance(GetParam()));
    EXPECT_LT(max_difference(scores.entropy_R.narrow(0, segment.begin, size), golden("entropy")),
              testing::log_prob_tolerance(GetParam()));
    if (i == 1) {
      EXPECT_LT(max_difference(hidden_TH.narrow(0, segment.begin, size), golden("hidden")),
                logit_tolerance(GetParam()));
    }
  }
}

TEST_P(GoldenModel, ContinuesGreedilyAsTheReference) {
  at::NoGradGuard no_grad;
  const auto network = model::load_network(fixture_->directory, model::Precision::of("float32"));
  const json::object& greedy = fixture_->golden.at("greedy").as_object();
  auto ids = json::value_to<std::vector<int64_t>>(greedy.at("prompt"));
  const auto expected = json::value_to<std::vector<int64_t>>(greedy.at("tokens"));
  const auto log_probs = json::value_to<std::vector<double>>(greedy.at("logprobs"));
  for (size_t i = 0; i < expected.size(); ++i) {
    const Tensor hidden_TH = run(*network, testing::pack({ids}));
    const Tensor logits_V = network->logits(hidden_TH.slice(0, -1))[0];
    const auto token = logits_V.argmax().item<int64_t>();
    ASSERT_EQ(token, expected[i]) << "token " << i;
    EXPECT_NEAR(logits_V.log_softmax(0)[token].item<double>(), log_probs[i],
                testing::log_prob_tolerance(GetParam()));
    ids.push_back(token);
  }
}

/// Mean cross-entropy over all predicted tokens, and its gradients in network.weights().grad().
double loss_and_gradient(model::Network& network, const model::TokenBatch& batch) {
  network.weights().enable_grad();
  network.weights().zero_grad();
  at::AutoGradMode grad_mode(true);
  model::TreeAttention attention(batch);
  const Tensor hidden_TH = network.forward(batch, attention);
  const auto targets = testing::next_tokens(batch);
  const auto scores =
      network.log_probs(hidden_TH.index_select(0, targets.row_R), targets.target_R, {});
  const Tensor loss = -scores.logprob_R.mean();
  torch::autograd::backward({loss}, {});
  return loss.item<double>();
}

TEST_P(GoldenModel, HasTheReferencesLossAndGradients) {
  const auto network = model::load_network(fixture_->directory, model::Precision::of("float32"));
  const double loss = loss_and_gradient(*network, testing::pack(fixture_->sequences()));
  EXPECT_NEAR(loss, fixture_->golden.at("loss").to_number<double>(), kLossTolerance);
  const json::object& norms = fixture_->golden.at("grad_norms").as_object();
  EXPECT_EQ(norms.size(), network->weights().tensors().size());
  for (const auto& weight : network->weights().tensors()) {
    const Tensor grad = model::Weights::view(network->weights().grad(), weight);
    const double norm = norms.at(weight.name).to_number<double>();
    EXPECT_NEAR(grad.norm().item<double>(), norm, gradient_tolerance(GetParam()) * norm)
        << weight.name;
    EXPECT_LE(testing::distance(grad, fixture_->gradient(weight.name)),
              gradient_tolerance(GetParam()) * norm)
        << weight.name;
  }
}

/// Of those that have one longer than the chunks of a gated delta net, alone and after others.
class GoldenLongSequence : public GoldenModel {};

std::vector<const char*> with_long_sequences() {
  std::vector<const char*> names = golden_models::all(golden_models::has_delta_nets);
  std::erase_if(names,
                [](const char* name) { return !FixtureModel(name).golden.contains("long"); });
  return names;
}

TEST_P(GoldenLongSequence, GivesTheReferencesNumbers) {
  const json::object& golden = fixture_->golden.at("long").as_object();
  const auto ids = json::value_to<std::vector<int64_t>>(golden.at("sequence"));
  const auto network = model::load_network(fixture_->directory, model::Precision::of("float32"));
  const double loss = loss_and_gradient(*network, testing::pack({ids}));
  EXPECT_NEAR(loss, golden.at("loss").to_number<double>(), kLossTolerance);
  const json::object& norms = golden.at("grad_norms").as_object();
  for (const auto& weight : network->weights().tensors()) {
    const double norm = norms.at(weight.name).to_number<double>();
    EXPECT_NEAR(model::Weights::view(network->weights().grad(), weight).norm().item<double>(), norm,
                gradient_tolerance(GetParam()) * norm)
        << weight.name;
  }
  const at::NoGradGuard no_grad;
  const auto batch = testing::pack({{3, 4, 5}, ids});
  const Tensor hidden_TH = run(*network, batch).slice(0, 3);
  const auto scores = network->log_probs(
      hidden_TH, at::cat({batch.ids_T.slice(0, 4), at::zeros({1}, at::kLong)}), {});
  const auto size = static_cast<int64_t>(ids.size());
  EXPECT_LT(max_difference(scores.logprob_R.narrow(0, 0, size - 1),
                           fixture_->tensors.read("long.logprobs")),
            testing::log_prob_tolerance(GetParam()));
  EXPECT_LT(max_difference(scores.entropy_R, fixture_->tensors.read("long.entropy")),
            testing::log_prob_tolerance(GetParam()));
  const testing::GoldenLogits last = fixture_->logits("long");
  EXPECT_LT(max_difference(network->logits(hidden_TH.slice(0, size - last.logit_TV.size(0))), last),
            logit_tolerance(GetParam()));
}

TEST_P(GoldenModel, ComputedFromBfloat16WeightsStaysWithinTheReferencesRounding) {
  at::NoGradGuard no_grad;
  const auto network = model::load_network(fixture_->directory, model::Precision::of("bfloat16"));
  auto batch = testing::pack(fixture_->sequences());
  // Where two experts are close bfloat16 may visit the other one, and the token changes as a whole.
  model::RouterPass replayed;
  if (network->config().has_experts()) {
    replayed.given_YTK = testing::golden_experts(*fixture_, network->config());
    batch.routers = &replayed;
  }
  const auto next = at::cat({batch.ids_T.slice(0, 1), batch.ids_T.slice(0, 0, 1)});
  const auto scores = network->log_probs(run(*network, batch), next, {});
  const auto& bfloat16 =
      fixture_->golden.at("measured_differences").at("eager_bfloat16").as_object();
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 1; i < batch.segments.size(); ++i) {
    const auto& segment = batch.segments[i];
    const Tensor golden = fixture_->tensors.read(fmt::format("seq{}.logprobs", i));
    const Tensor ours = scores.logprob_R.narrow(0, segment.begin, golden.size(0)).to(at::kFloat);
    const Tensor difference = (ours - golden).abs();
    sum += difference.sum().item<double>();
    count += golden.size(0);
  }
  EXPECT_LT(sum / static_cast<double>(count),
            1.5 * bfloat16.at("logprobs_mean").to_number<double>() + 1e-4);
}

TEST_P(GoldenModel, VisitsTheExpertsOfTheReference) {
  at::NoGradGuard no_grad;
  const auto network = model::load_network(fixture_->directory, model::Precision::of("float32"));
  const model::ModelConfig& config = network->config();
  if (!config.has_experts()) return;
  auto batch = testing::pack(fixture_->sequences());
  model::RouterPass routers;
  routers.made_YTK =
      at::zeros({config.num_layers, batch.num_tokens(), config.experts.per_token}, at::kShort);
  batch.routers = &routers;
  run(*network, batch);
  const Tensor expected = testing::golden_experts(*fixture_, config);
  EXPECT_TRUE(std::get<0>(routers.made_YTK.sort(-1)).equal(std::get<0>(expected.sort(-1))));
}

TEST_P(GoldenModel, ReplayOfItsOwnChoicesChangesNothing) {
  const auto network = model::load_network(fixture_->directory, model::Precision::of("float32"));
  const model::ModelConfig& config = network->config();
  if (!config.has_experts()) return;
  auto batch = testing::pack(fixture_->sequences());
  const double loss = loss_and_gradient(*network, batch);
  const Tensor grad = network->weights().grad().clone();
  model::RouterPass recorded, replayed;
  recorded.made_YTK =
      at::zeros({config.num_layers, batch.num_tokens(), config.experts.per_token}, at::kShort);
  batch.routers = &recorded;
  EXPECT_EQ(loss_and_gradient(*network, batch), loss);
  replayed.given_YTK = recorded.made_YTK;
  batch.routers = &replayed;
  for (const auto how : {model::Recompute::kNone, model::Recompute::kFull}) {
    network->set_recompute(how);
    EXPECT_EQ(loss_and_gradient(*network, batch), loss);
    EXPECT_LT(max_difference(network->weights().grad(), grad), 1e-5);
  }
  // The others change everything, and the router learns from whom it was given.
  replayed.given_YTK = (recorded.made_YTK + 1).remainder(config.experts.count);
  EXPECT_GT(std::abs(loss_and_gradient(*network, batch) - loss), 1e-3);
  EXPECT_GT(max_difference(network->weights().grad(), grad), 1e-3);
}

TEST_P(GoldenModel, LooksAtTheTokensOfTheReference) {
  at::NoGradGuard no_grad;
  const auto network = model::load_network(fixture_->directory, model::Precision::of("float32"));
  const model::IndexerConfig& indexer = network->config().indexer;
  const auto sequences = fixture_->sequences();
  for (int layer = 0; layer < static_cast<int>(indexer.in_layer.size()); ++layer) {
    if (!indexer.in_layer[static_cast<size_t>(layer)]) continue;
    for (size_t i = 1; i < sequences.size(); ++i) {
      const auto batch = testing::pack({sequences[i]});
      testing::ChosenTokens attention(batch);
      network->forward(batch, attention);
      const Tensor golden = fixture_->tensors.read(fmt::format("seq{}.layer{}.attended", i, layer));
      const Tensor mask_TT = attention.masks.at(layer);
      for (int64_t row = 0; row < golden.size(0); ++row) {
        const Tensor expected = golden[row].index({golden[row] >= 0}).to(at::kLong);
        EXPECT_TRUE(mask_TT[row].nonzero().squeeze(1).equal(expected))
            << "layer " << layer << ", sequence " << i << ", token " << row;
      }
    }
  }
}

TEST_P(GoldenModel, IsTheSameWithRecompute) {
  const auto network = model::load_network(fixture_->directory, model::Precision::of("float32"));
  const auto batch = testing::pack(fixture_->sequences());
  const double loss = loss_and_gradient(*network, batch);
  const Tensor grad = network->weights().grad().clone();
  for (const auto how : {model::Recompute::kFull, model::Recompute::kSelective}) {
    network->set_recompute(how);
    EXPECT_EQ(loss_and_gradient(*network, batch), loss);
    EXPECT_LT(max_difference(network->weights().grad(), grad),
              1e-5);  // sums in another order, nothing else
  }
}

TEST_P(GoldenModel, IsSavedTensorByTensorAsItWasRead) {
  const std::string dtype = model::read_model_config(fixture_->directory).dtype;
  const auto network = model::load_network(fixture_->directory, model::Precision::of(dtype));
  const auto saved = std::filesystem::temp_directory_path() /
                     fmt::format("slime-saved-{}-{}", GetParam(), ::getpid());
  std::filesystem::create_directories(saved);
  model::save_network(*network, saved);
  {
    const model::ModelFiles expected(fixture_->directory), found(saved);
    EXPECT_EQ(found.tensors().size(), expected.tensors().size());
    for (const auto& [name, location] : expected.tensors()) {
      ASSERT_TRUE(found.tensors().contains(name)) << name;
      const Tensor a = location.file->read(name), b = found.tensors().at(name).file->read(name);
      EXPECT_EQ(a.scalar_type(), b.scalar_type()) << name;
      EXPECT_TRUE(a.equal(b)) << name;
    }
  }
  EXPECT_EQ(model::read_model_config(saved).raw, network->config().raw);
  std::filesystem::remove_all(saved);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenLongSequence, ::testing::ValuesIn(with_long_sequences()),
                         golden_models::name_of);
INSTANTIATE_TEST_SUITE_P(Models, GoldenModel, ::testing::ValuesIn(golden_models::all()),
                         golden_models::name_of);

}  // namespace
}  // namespace slime
