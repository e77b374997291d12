// Gradients are summed in the same buckets on all ranks, whether a backward pass told of them or not.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "core/clock.h"
#include "model/network.h"
#include "rank_threads.h"
#include "train/gradient_reduction.h"
#include "train_cases.h"

namespace slime::parity {
namespace {

/// x[i] = (rank + 1) (i + 1)
Tensor numbers_of(int rank, int64_t n) { return (at::arange(n, at::kDouble) + 1) * (rank + 1); }

TEST(GradientReduction, ARankWithoutABackwardSumsTheSameBuckets) {
  for (const int64_t bucket_elements : {int64_t{1}, int64_t{20'000}, int64_t{1} << 40}) {
    on_ranks(3, [&](const comm::Mesh& mesh) {
      const auto network =
          model::load_network(kModels + "qwen3", model::Precision::of("float64"), mesh);
      model::Weights& weights = network->weights();
      train::GradientReduction reduction(weights, mesh);
      const std::vector<int64_t> marks = network->gradient_marks();
      EXPECT_EQ(marks.size() + 1, static_cast<std::size_t>(network->config().num_layers));
      EXPECT_TRUE(std::ranges::is_sorted(marks, std::greater()));
      reduction.set_marks(marks, bucket_elements);
      weights.enable_grad();
      const int64_t n = weights.num_elements();
      for (int step = 0; step < 2; ++step) {
        weights.grad().copy_(numbers_of(mesh.rank(), n));
        // Behind a micro-batch that is not the last one nothing is complete.
        for (const int64_t mark : marks) reduction.complete_from(mark);
        EXPECT_TRUE(at::equal(weights.grad(), numbers_of(mesh.rank(), n)));
        if (mesh.rank() != 1) {
          reduction.begin_last_backward();
          for (const int64_t mark : marks) reduction.complete_from(mark);
        }
        reduction.finish();
        const comm::Range own = reduction.parts().front().own();
        EXPECT_TRUE(at::equal(weights.grad().narrow(0, own.begin, own.size()),
                              6 * numbers_of(0, n).narrow(0, own.begin, own.size())));
      }
    });
  }
}

TEST(GradientReduction, TheBackwardTellsOfEachMarkInOrder) {
  const auto network = model::load_network(kModels + "qwen3", model::Precision::of("float64"));
  const train::TrainBatch batch =
      train::make_train_batch(made_up_groups(2, 2, network->config().vocab_size), {});
  for (const auto recompute : {model::Recompute::kNone, model::Recompute::kFull}) {
    train::TrainConfig config = grpo_config();
    config.policy.kl_loss.reset();
    config.recompute = recompute;
    config.batching.global_batch_size = 4;
    config.batching.use_dynamic_batch_size = true;
    config.batching.max_tokens_per_gpu = 1'000;
    const SystemClock clock;
    train::Trainer trainer(*network, config, clock);
    std::vector<int64_t> told;
    std::vector<Tensor> then;  // the gradients from there on, when it was told
    network->on_gradients([&](int64_t begin) {
      told.push_back(begin);
      then.push_back(network->weights()
                         .grad()
                         .narrow(0, begin, network->weights().num_elements() - begin)
                         .clone());
    });
    trainer.accumulate_gradients(batch);
    EXPECT_EQ(told, network->gradient_marks());
    for (std::size_t i = 0; i < told.size(); ++i) {
      const Tensor last = network->weights().grad().narrow(0, told[i], then[i].size(0));
      EXPECT_GT(last.abs().max().item<double>(), 0);
      EXPECT_TRUE(at::equal(then[i], last)) << "mark " << i;
    }
  }
}

}  // namespace
}  // namespace slime::parity
