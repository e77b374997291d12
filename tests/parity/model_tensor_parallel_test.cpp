// A decoder whose products and vocabulary are sliced over ranks computes what one rank computes:
// log-probs, entropies and gradients, in float64, whether the ranks hold the residual stream whole or cut
// by rows.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>

#include "core/error.h"
#include "layer_kinds.h"
#include "model/golden_models_for_tests.h"
#include "model/layers/tensor_parallel.h"
#include "model/save.h"
#include "model/tree_attention.h"
#include "rank_threads.h"
#include "train/packing.h"
#include "train_cases.h"

namespace slime::parity {
namespace {

using model::NamedWeight;
using model::Weights;

const model::Precision kDouble = model::Precision::of("float64");

struct Result {
  Tensor logprob_T;
  Tensor entropy_T;
  std::map<std::string, Tensor> grads;  // of this rank's slices
};

/// The network of a rank.
using Load = std::function<std::unique_ptr<model::Network>(const comm::Mesh&)>;

model::TokenBatch three_sequences() {
  const std::vector<std::vector<TokenId>> sequences{{5, 6, 7, 8, 9}, {5, 6, 11}, {300, 2, 1, 0}};
  std::vector<train::Sequence> spans;
  for (const std::vector<TokenId>& tokens : sequences) spans.push_back({tokens, 1});
  return train::pack(spans, {}).tokens;
}

/// Completes the gradients of weights that all ranks hold whole and of which each has computed a
/// part, as a trainer of slices will.
void sum_partial_gradients(const Weights& weights, comm::RankGroup& tp) {
  if (tp.is_alone()) return;
  std::vector<Tensor> partial;
  for (const NamedWeight& weight : weights.tensors()) {
    if (weight.has_partial_grad)
      partial.push_back(Weights::view(weights.grad(), weight).view({-1}));
  }
  if (partial.empty()) return;
  const Tensor all = at::cat(partial);
  tp.all_reduce_(all, "summing partial gradients");
  int64_t begin = 0;
  for (const Tensor& grad : partial) {
    grad.copy_(all.narrow(0, begin, grad.numel()));
    begin += grad.numel();
  }
}

Result run(const Load& load, const comm::Mesh& mesh, model::Recompute recompute) {
  const auto network = load(mesh);
  network->set_recompute(recompute);
  Weights& weights = network->weights();
  weights.enable_grad();
  const model::TokenBatch batch = three_sequences();
  Result result;
  model::TreeAttention attention(batch);
  const Tensor hidden_TH = network->forward(batch, attention);
  // Any function of the log-probs that is not alike in its elements.
  const Tensor target_T = (batch.ids_T * 7 + 3).remainder(network->config().vocab_size);
  const kernels::LogProbs scores =
      network->log_probs(hidden_TH, target_T, {.temperature = 0.7, .entropy_gradient = true});
  const Tensor weight_T = at::arange(target_T.numel(), at::kDouble).mul_(0.37).sin_();
  (scores.logprob_R * weight_T + scores.entropy_R * weight_T.flip(0)).sum().backward();
  result.logprob_T = scores.logprob_R.detach();
  result.entropy_T = scores.entropy_R.detach();
  sum_partial_gradients(weights, mesh.tp());
  for (const NamedWeight& weight : weights.tensors())
    result.grads[weight.name] = Weights::view(weights.grad(), weight).clone();
  return result;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

void expect_same(const Load& load, const comm::ParallelLayout& layout,
                 model::Recompute recompute = model::Recompute::kNone) {
  SCOPED_TRACE(::testing::Message()
               << layout.tp << " ranks, rows " << (layout.sequence_parallel ? "cut" : "whole"));
  const Result one = run(load, comm::Mesh::single(), model::Recompute::kNone);
  std::vector<Result> of_rank(layout.tp);
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    of_rank[mesh.rank()] = run(load, mesh, recompute);
    const auto network = load(mesh);
    for (const NamedWeight& weight : network->weights().tensors()) {
      const Tensor& whole = one.grads.at(weight.name);
      const double size = whole.abs().max().item<double>();
      const bool is_of_indexer = weight.name.find(".indexer.") != std::string::npos;
      EXPECT_TRUE(size > 1e-6 || is_of_indexer) << weight.name << " has no gradient to compare";
      const Tensor& own = of_rank[mesh.rank()].grads.at(weight.name);
      EXPECT_LT(largest_difference(own, weight.slices.of(whole)), 1e-12 * std::max(size, 1.0))
          << weight.name << " at rank " << mesh.rank();
    }
  });
  for (const Result& result : of_rank) {
    EXPECT_LT(largest_difference(result.logprob_T, one.logprob_T), 1e-12);
    EXPECT_LT(largest_difference(result.entropy_T, one.entropy_T), 1e-12);
    EXPECT_TRUE(at::equal(of_rank[0].logprob_T, result.logprob_T));
  }
}

void expect_same_on_two_ranks(const std::filesystem::path& directory,
                              model::Recompute recompute = model::Recompute::kNone) {
  const Load load = [&](const comm::Mesh& mesh) {
    return model::load_network(directory, kDouble, mesh);
  };
  expect_same(load, {.tp = 2}, recompute);
  expect_same(load, {.tp = 2, .sequence_parallel = true}, recompute);
}

/// Random weights of the configuration, of which each rank has its slices.
void expect_same_on_two_and_four_ranks(const model::ModelConfig& config) {
  at::manual_seed(3);
  const auto whole = model::make_uniform_network(config, kDouble, 0.3);
  const Load load = [&](const comm::Mesh& mesh) {
    auto network = model::make_blank_network(config, kDouble, mesh);
    for (const NamedWeight& weight : network->weights().tensors()) {
      const auto& tensors = whole->weights().tensors();
      const auto& source = *std::ranges::find(tensors, weight.name, &NamedWeight::name);
      Weights::view(network->weights().flat(), weight)
          .copy_(weight.slices.of(Weights::view(whole->weights().flat(), source)));
    }
    return network;
  };
  expect_same(load, {.tp = 2});
  expect_same(load, {.tp = 2, .sequence_parallel = true});
  expect_same(load, {.tp = 4, .sequence_parallel = true});
}

TEST(TensorParallel, TwoRanksComputeWhatOneDoes) {
  // Norms of q and k, of each head and of all; biases; several matrices in one tensor; caps.
  for (const char* name :
       golden_models::all(golden_models::is_dense, golden_models::divides_by_two)) {
    SCOPED_TRACE(name);
    expect_same_on_two_ranks(kModels + name);
  }
}

TEST(TensorParallel, LayersThatAreComputedAgainSumAgain) {
  expect_same_on_two_ranks(kModels + "qwen3", model::Recompute::kFull);
}

TEST(TensorParallel, BiasesOfSumsAreAddedOnce) {
  model::ModelConfig config = model::read_model_config(kModels + "llama");
  config.raw = {};
  config.has_qkv_bias = config.has_output_bias = config.has_mlp_bias = true;
  const auto directory = std::filesystem::temp_directory_path() /
                         ("slime_tensor_parallel_" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  at::manual_seed(3);
  // A file has float32 at most; what is read is computed in float64.
  const auto network = model::make_uniform_network(config, model::Precision::of("float32"), 0.3);
  model::save_network(*network, directory);
  expect_same_on_two_ranks(directory);
  std::filesystem::remove_all(directory);
}

TEST(TensorParallel, NormsOverAllHeadsAreOverThoseOfAllRanks) {
  expect_same_on_two_ranks(kModels + "olmo2", model::Recompute::kFull);
}

TEST(TensorParallel, RanksHaveHeadsOfLatentAttentionAndTheLatentsWhole) {
  model::ModelConfig config = latent_model(2);
  expect_same_on_two_and_four_ranks(config);
  config.latent.q_rank = 0;
  expect_same_on_two_and_four_ranks(config);
}

TEST(TensorParallel, RanksWithHeadsOfSparseAttentionChooseTheSameTokens) {
  expect_same_on_two_and_four_ranks(sparse_model());
}

TEST(TensorParallel, RanksHaveHeadsOfGatedDeltaNets) {
  model::ModelConfig config = delta_model(2, 2);
  expect_same_on_two_and_four_ranks(config);
  config.delta.is_grouped_by_key_head = true;
  expect_same_on_two_and_four_ranks(config);
}

TEST(TensorParallel, SelectiveRecomputationIsRefused) {
  on_mesh({.tp = 2}, [](const comm::Mesh& mesh) {
    const auto network = model::load_network(kModels + "qwen3", kDouble, mesh);
    EXPECT_THROW(network->set_recompute(model::Recompute::kSelective), BugError);
  });
}

}  // namespace
}  // namespace slime::parity
