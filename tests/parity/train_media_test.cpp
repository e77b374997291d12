// Loss and gradients of prompts with rows from elsewhere: those of the same prompts as ids, whatever
// packing makes of them, and the same on every layout of ranks.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "core/clock.h"
#include "core/error.h"
#include "layout_cases.h"
#include "media_cases.h"

namespace slime::parity {
namespace {

using namespace train;
using testing::TableRows;

/// The prompts of `groups` have a span of four tokens, from the third on.
std::vector<Group> with_pictures(std::vector<Group> groups) {
  for (Group& group : groups)
    for (Sample& sample : group.samples) sample.media.push_back(testing::hide(sample.tokens, 2, 6));
  return groups;
}

Outcome run(const std::vector<Group>& groups, int64_t min_saved, bool shares) {
  TrainConfig config = grpo_config();
  config.packing = {shares, min_saved};
  config.batching.micro_batch_size = 100;
  const auto load = [] {
    return testing::with_own_rows(
        model::load_network(kModels + "qwen3", model::Precision::of("float64")));
  };
  const auto network = load();
  SystemClock clock;
  OtherNetworks others;
  others.reference = load();
  Trainer trainer(*network, config, clock, std::move(others));
  const algo::MetricSums sums = trainer.accumulate_gradients(make_train_batch(groups, {}));
  return {sums, network->weights().grad().clone()};
}

TEST(MediaInTraining, LossAndGradientsAreThoseOfTheSameIds) {
  const std::vector<Group> ids = made_up_groups(3, 4, 384);
  const Outcome plain = run(ids, 0, false);
  expect_same(run(with_pictures(ids), 0, false), plain, 1e-11);
  expect_same(run(with_pictures(ids), 1, true), plain, 1e-11);
}

/// Ids of all prompts are the same, and what the spans stand for is not.
TEST(MediaInTraining, PromptsThatDifferInTheirAttachmentsAloneShareNoRowOfThem) {
  std::vector<Group> ids = made_up_groups(3, 2, 384);
  for (Group& group : ids) {
    for (Sample& sample : group.samples) {
      sample.tokens.erase(sample.tokens.begin() + 10, sample.tokens.begin() + sample.prompt_length);
      sample.prompt_length = 10;
      for (int64_t i = 2; i < 6; ++i)
        sample.tokens[i] = static_cast<TokenId>(20 * (group.ordinal + 1) + i);
    }
  }
  const Outcome plain = run(ids, 0, false);
  expect_same(run(with_pictures(ids), 1, true), plain, 1e-11);
}

/// What a tower would learn from: the sum over ranks that have different rows.
TEST(MediaInTraining, LossAndGradientsAreTheSameOnEveryLayout) {
  const std::vector<Group> groups = with_pictures(made_up_groups(3, 4, 320));
  const TrainBatch batch = make_train_batch(groups, {});
  const TrainConfig config = [] {
    TrainConfig made = grpo();
    made.policy.kl_loss.reset();
    return made;
  }();
  const std::string directory = kModels + "qwen3";
  at::manual_seed(4);
  const Tensor table_VH = at::rand({384, 64}, at::kDouble) - 0.5;
  struct Result {
    WholeOutcome whole;
    Tensor of_table;
  };
  const auto train = [&](const ParallelLayout& layout) {
    TrainConfig own_config = config;
    own_config.batching.dp = layout.dp;
    Result result;
    const SystemClock clock;
    std::mutex mutex;
    on_mesh(layout, [&](const comm::Mesh& mesh) {
      const auto network = model::load_network(directory, kExact, mesh);
      ASSERT_EQ(network->config().hidden_size, table_VH.size(1));
      auto source = std::make_unique<TableRows>(table_VH);
      TableRows& rows = *source;
      network->set_media_source(std::move(source));
      Trainer trainer(*network, own_config, clock, {}, mesh);
      const algo::MetricSums sums =
          trainer.accumulate_gradients(trainer.divide(batch).at(mesh.at().dp));
      const std::lock_guard lock(mutex);
      const bool is_same = layout.tp > 1 && !layout.sequence_parallel;
      const Tensor own =
          is_same && mesh.at().tp > 0 ? at::zeros_like(rows.gradient()) : rows.gradient().clone();
      result.of_table = result.of_table.defined() ? result.of_table + own : own;
      if (mesh.rank() == 0) result.whole.sums = sums;
    });
    return result;
  };
  const Result plain = train({});
  const double size = plain.of_table.abs().max().item<double>();
  ASSERT_GT(size, 1e-4);
  for (const ParallelLayout& layout :
       std::vector<ParallelLayout>{{.tp = 2},
                                   {.tp = 2, .sequence_parallel = true},
                                   {.cp = 2},
                                   {.cp = 2, .contiguous_context = true},
                                   {.pp = 2, .first_layers = 1},
                                   {.tp = 2, .cp = 2, .sequence_parallel = true}}) {
    SCOPED_TRACE(name_of(layout));
    const Result other = train(layout);
    for (const auto& [name, value] : plain.whole.sums)
      EXPECT_NEAR(other.whole.sums.at(name), value, 1e-10 * std::max(1.0, std::abs(value)));
    EXPECT_LE((other.of_table - plain.of_table).abs().max().item<double>(), 1e-10 * size);
  }
}

TEST(MediaInTraining, ModelsOfTextRefuseThem) {
  const TrainBatch batch = make_train_batch(with_pictures(made_up_groups(1, 2, 320)), {});
  TrainConfig config = grpo_config();
  config.policy.kl_loss.reset();
  const auto network = model::load_network(kModels + "qwen3", model::Precision::of("float64"));
  SystemClock clock;
  Trainer trainer(*network, config, clock, {});
  EXPECT_THROW(trainer.accumulate_gradients(batch), ConfigError);
}

}  // namespace
}  // namespace slime::parity
