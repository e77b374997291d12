// Attention to the tokens that an indexer chose: its products and gradients, and that training does not
// depend on how sequences share their prefixes. Known answers: model_parity_test.cpp, engine_parity_test.cpp.

#include "model/sparse_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/clock.h"
#include "engine_fixture.h"
#include "train_cases.h"

namespace slime {
namespace {

using model::Segment;

Tensor made_up(std::vector<int64_t> shape, double phase) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::sin(at::arange(count, at::kDouble) * 0.7 + phase).view(shape);
}

model::IndexInput made_up_index(int64_t rows) {
  return {made_up({rows, 3, 4}, 1), made_up({rows, 4}, 2), made_up({rows, 3}, 3)};
}

/// A prompt of five tokens with two continuations of three, and the rows of both sequences.
const std::vector<Segment> kForest{{0, 5, -1}, {5, 8, 0}, {8, 11, 0}};
const std::vector<std::vector<int64_t>> kRows{{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 8, 9, 10}};

TEST(SparseAttention, ChoosesTheBestEarlierTokensOfEachRow) {
  const model::IndexInput index = made_up_index(11);
  const model::TokenChoice choice = model::choose_tokens(index, kForest, 4);
  for (std::size_t segment = 1; segment < kForest.size(); ++segment) {
    const std::vector<int64_t>& rows = kRows[segment - 1];
    EXPECT_TRUE(choice[segment].row_S.equal(at::tensor(rows, at::kLong)));
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t place = 5 + i, row = rows[place];
      std::vector<double> scores;
      for (int64_t s = 0; s <= place; ++s) {
        double score = 0;
        for (int64_t head = 0; head < 3; ++head) {
          const double product =
              (index.query_TJD[row][head] * index.key_TD[rows[s]]).sum().item<double>();
          score += std::max(product, 0.0) * index.weight_TJ[row][head].item<double>();
        }
        scores.push_back(score);
      }
      for (int64_t s = 0; s < 8; ++s) {
        const bool is_best = s <= place && std::ranges::count_if(scores, [&](double other) {
                                             return other > scores[s];
                                           }) < 4;
        EXPECT_EQ(choice[segment].mask_nS[i][s].item<bool>(), is_best) << row << ", " << s;
      }
    }
  }
  EXPECT_TRUE(choice[0].mask_nS[3].narrow(0, 0, 4).all().item<bool>()) << "all of the first four";
}

TEST(SparseAttention, HasTheGradientsThatAutogradHasOfPlainProducts) {
  const model::TokenChoice choice = model::choose_tokens(made_up_index(11), kForest, 4);
  const auto inputs = [] {
    return std::vector<Tensor>{made_up({11, 2, 6}, 0).requires_grad_(),
                               made_up({11, 2, 6}, 4).requires_grad_(),
                               made_up({11, 2, 3}, 5).requires_grad_()};
  };
  const Tensor weight_TNV = made_up({11, 2, 3}, 6);
  const auto ours = inputs(), plain = inputs();
  const Tensor out = model::sparse_attention(ours[0], ours[1], ours[2], {choice, kForest}, 0.4);
  torch::autograd::backward({(out * weight_TNV).sum()}, {});
  std::vector<Tensor> rows;
  for (std::size_t s = 0; s < kForest.size(); ++s) {
    for (int64_t row = kForest[s].begin; row < kForest[s].end; ++row) {
      const Tensor chosen = choice[s].row_S.index({choice[s].mask_nS[row - kForest[s].begin]});
      const Tensor key_kND = plain[1].index_select(0, chosen);
      const Tensor weight_kN = ((key_kND * plain[0][row]).sum(-1) * 0.4).softmax(0);
      rows.push_back((weight_kN.unsqueeze(-1) * plain[2].index_select(0, chosen)).sum(0));
    }
  }
  const Tensor expected = at::stack(rows);
  torch::autograd::backward({(expected * weight_TNV).sum()}, {});
  EXPECT_TRUE(at::allclose(out, expected, 1e-12, 1e-13));
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(at::allclose(ours[i].grad(), plain[i].grad(), 1e-12, 1e-13)) << i;
}

class SparseModel : public ::testing::TestWithParam<const char*> {};

TEST_P(SparseModel, TrainingDoesNotDependOnPackingSharingOrMicroBatches) {
  model::ModelConfig shape = model::read_model_config(parity::kModels + GetParam());
  shape.initializer_range = 0.2;
  const train::TrainBatch batch = train::make_train_batch(parity::made_up_groups(2, 4, 128), {});
  const auto gradients = [&](train::TrainConfig config, bool shares, int64_t size) {
    const auto network = model::make_network(shape, model::Precision::of("float64"), 7);
    const SystemClock clock;
    config.policy.kl_loss.reset();
    config.packing = {shares, 1};
    config.batching.micro_batch_size = size;
    train::Trainer trainer(*network, config, clock);
    const algo::MetricSums sums = trainer.accumulate_gradients(batch);
    return parity::Outcome{sums, network->weights().grad().clone()};
  };
  train::TrainConfig config = parity::grpo_config();
  const parity::Outcome plain = gradients(config, false, 1);
  parity::expect_same(gradients(config, true, 3), plain, 1e-11);
  parity::expect_same(gradients(config, true, 100), plain, 1e-11);
  config.recompute = model::Recompute::kFull;
  parity::expect_same(gradients(config, true, 100), plain, 1e-11);
}

INSTANTIATE_TEST_SUITE_P(Models, SparseModel,
                         ::testing::ValuesIn(golden_models::all(golden_models::has_indexers)),
                         golden_models::name_of);

}  // namespace
}  // namespace slime
