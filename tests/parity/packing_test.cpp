/// Loss and gradients do not depend on how sequences share a batch or a prompt: 1e-10 in float64.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "fixture_models.h"
#include "model/tree_attention.h"

namespace slime {
namespace {

constexpr double kTolerance = 1e-10;

using Sequence = std::vector<int64_t>;

/// Log-probs of `rows` predicting `targets`, and the gradient of their sum weighted by `weight_R`,
/// added to the network's.
Tensor score(model::Network& network, const model::TokenBatch& batch,
             const std::vector<int64_t>& rows, const Sequence& targets, const Tensor& weight_R) {
  at::AutoGradMode grad_mode(true);
  model::TreeAttention attention(batch);
  const Tensor hidden_TH = network.forward(batch, attention);
  const auto scores = network.log_probs(hidden_TH.index_select(0, at::tensor(rows, at::kLong)),
                                        at::tensor(targets, at::kLong), {.chunk_bytes = 40'000});
  torch::autograd::backward({(scores.logprob_R * weight_R).sum()}, {});
  return scores.logprob_R.detach();
}

class Packing : public ::testing::TestWithParam<const char*> {};

TEST_P(Packing, OfResponsesUnderTheirPromptEqualsEverySequenceAlone) {
  const auto network =
      model::load_network(golden_models::directory(GetParam()), model::Precision::of("float64"));
  network->weights().enable_grad();
  const Sequence prompt = {5, 17, 120, 33, 9, 41, 77, 12, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69};
  const std::vector<Sequence> responses = {
      {7}, {100, 101, 102, 103, 104}, Sequence(23, 42), {9, 8, 7, 6, 5, 4, 3, 2, 1}};

  // Alone: each sequence is a batch of its own.
  std::vector<Tensor> alone;
  double seed = 1;
  network->weights().zero_grad();
  for (const Sequence& response : responses) {
    Sequence ids = prompt;
    ids.insert(ids.end(), response.begin(), response.end());
    std::vector<int64_t> rows;
    for (size_t i = 0; i < response.size(); ++i)
      rows.push_back(static_cast<int64_t>(prompt.size() + i) - 1);
    const Tensor weight_R =
        at::arange(seed, seed + static_cast<double>(response.size()), at::kDouble).sin();
    alone.push_back(score(*network, testing::pack({ids}), rows, response, weight_R));
    seed += static_cast<double>(response.size());
  }
  const Tensor grad_alone = network->weights().grad().clone();
  // Behind states that have decayed norms make gradients of these weights as large as thousands.
  const double size = testing::has_states(GetParam()) ? grad_alone.abs().max().item<double>() : 1;
  EXPECT_LT(size, 1e4);

  // Together: the prompt once, in two segments, the responses as its children.
  for (const auto recompute :
       {model::Recompute::kNone, model::Recompute::kSelective, model::Recompute::kFull}) {
    network->set_recompute(recompute);
    model::TokenBatch batch;
    const auto length = static_cast<int64_t>(prompt.size());
    Sequence ids = prompt, positions, targets;
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < length; ++i) positions.push_back(i);
    batch.segments = {{0, 5, -1}, {5, length, 0}};
    for (const Sequence& response : responses) {
      const auto begin = static_cast<int64_t>(ids.size());
      ids.insert(ids.end(), response.begin(), response.end());
      for (size_t i = 0; i < response.size(); ++i) {
        positions.push_back(length + static_cast<int64_t>(i));
        rows.push_back(i == 0 ? length - 1 : begin + static_cast<int64_t>(i) - 1);
        targets.push_back(response[i]);
      }
      batch.segments.push_back({begin, static_cast<int64_t>(ids.size()), 1});
    }
    batch.ids_T = at::tensor(ids, at::kLong);
    batch.rotary_row_T = at::tensor(positions, at::kLong);
    network->weights().zero_grad();
    const Tensor together =
        score(*network, batch, rows, targets,
              at::arange(1, static_cast<int64_t>(rows.size()) + 1, at::kDouble).sin());
    EXPECT_LT((together - at::cat(alone)).abs().max().item<double>(), kTolerance);
    EXPECT_LT((network->weights().grad() - grad_alone).abs().max().item<double>(),
              kTolerance * std::max(1.0, size));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Packing, ::testing::ValuesIn(golden_models::all()),
                         golden_models::name_of);

}  // namespace
}  // namespace slime
