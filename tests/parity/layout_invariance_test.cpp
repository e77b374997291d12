// Loss and full gradient are those of one rank on every layout: data, tensor (with sequence
// parallelism), context and pipeline parallel ranks, and all of them together. Ranks are threads here,
// each with its part of the network, connected by Gloo as processes are.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "core/clock.h"
#include "layer_kinds.h"
#include "model/save.h"
#include "rank_threads.h"
#include "train/checkpoint.h"
#include "train/whole_tensors.h"
#include "train_cases.h"

namespace slime::parity {
namespace {

using namespace train;
using comm::ParallelLayout;

const model::Precision kExact = model::Precision::of("float64");

/// A folder that is gone with the test.
struct Scratch {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               fmt::format("slime_layouts_{}_{}", ::getpid(), count++);
  Scratch() { std::filesystem::create_directories(path); }
  ~Scratch() { std::filesystem::remove_all(path); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  static inline int count = 0;
};

void make_model(const std::filesystem::path& directory, const model::ModelConfig& config) {
  at::manual_seed(3);
  // A file has float32 at most; what is read is computed in float64.
  model::save_network(*model::make_uniform_network(config, model::Precision::of("float32"), 0.25),
                      directory);
}

/// A model that eight ranks can divide: eight layers, eight heads over four of keys and values.
void make_model(const std::filesystem::path& directory, const char* like, bool ties_embeddings) {
  model::ModelConfig config = model::read_model_config(kModels + like);
  config.raw = {};
  config.num_layers = 8;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = config.rotary_dim = 16;
  config.window.assign(8, 0);
  config.window[1] = config.window[6] = 7;
  config.ties_embeddings = ties_embeddings;
  make_model(directory, config);
}

std::string name_of(const ParallelLayout& layout) {
  return fmt::format("dp {} tp {}{} cp {}{} pp {} in {} ({} and {})", layout.dp, layout.tp,
                     layout.sequence_parallel ? " sp" : "", layout.cp,
                     layout.contiguous_context ? " contiguous" : "", layout.pp, layout.chunks,
                     layout.first_layers, layout.last_layers);
}

struct WholeOutcome {
  algo::MetricSums sums;
  std::map<std::string, Tensor> grads;
  double norm = 0;
};

OtherNetworks others_of(const TrainConfig& config, const std::filesystem::path& directory,
                        const comm::Mesh& mesh) {
  OtherNetworks others;
  if (needs_reference(config)) others.reference = model::load_network(directory, kExact, mesh);
  return others;
}

/// Sums and gradients of the batch as one training step, brought together at rank 0.
WholeOutcome gradients(const std::filesystem::path& directory, const TrainBatch& batch,
                       TrainConfig config, const ParallelLayout& layout) {
  config.batching.dp = layout.dp;
  WholeOutcome outcome;
  const SystemClock clock;
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    const auto network = model::load_network(directory, kExact, mesh);
    Trainer trainer(*network, config, clock, others_of(config, directory, mesh), mesh);
    const algo::MetricSums sums =
        trainer.accumulate_gradients(trainer.divide(batch).at(mesh.at().dp));
    const double norm = std::sqrt(trainer.optimizer().gradient_squares());
    const WholeTensors layout_of(mesh, network->weights());
    const comm::Range shard = trainer.optimizer().shard();
    const Tensor own = network->weights().grad().narrow(0, shard.begin, shard.size());
    for (std::size_t i = 0; i < layout_of.entries().size(); ++i) {
      const Tensor grad = layout_of.gather(i, own, BufferForm::kShard);
      if (mesh.rank() == 0) outcome.grads[layout_of.entries()[i].name] = grad.clone();
    }
    if (mesh.rank() == 0) {
      outcome.sums = sums;
      outcome.norm = norm;
    }
  });
  return outcome;
}

void expect_same(const WholeOutcome& other, const WholeOutcome& plain) {
  EXPECT_NEAR(other.norm, plain.norm, 1e-10 * plain.norm);
  ASSERT_EQ(other.sums.size(), plain.sums.size());
  for (const auto& [name, value] : plain.sums)
    EXPECT_NEAR(other.sums.at(name), value, 1e-10 * std::max(1.0, std::abs(value))) << name;
  ASSERT_EQ(other.grads.size(), plain.grads.size());
  for (const auto& [name, grad] : plain.grads) {
    const double size = grad.abs().max().item<double>();
    EXPECT_GT(size, 0) << name;
    ASSERT_EQ(other.grads.at(name).sizes(), grad.sizes()) << name;
    EXPECT_LT((other.grads.at(name) - grad).abs().max().item<double>(), 1e-10 * size) << name;
  }
}

void expect_layout_invariant(const std::filesystem::path& directory, const TrainBatch& batch,
                             const TrainConfig& config,
                             const std::vector<ParallelLayout>& layouts) {
  const WholeOutcome plain = gradients(directory, batch, config, {});
  for (const ParallelLayout& layout : layouts) {
    SCOPED_TRACE(name_of(layout));
    expect_same(gradients(directory, batch, config, layout), plain);
  }
}

/// Shared prefixes, and several micro-batches for each rank.
TrainConfig with_batching(TrainConfig config, int64_t executions, int64_t max_tokens) {
  config.batching.global_batch_size = executions;
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = max_tokens;
  config.packing = {true, 1};
  config.bucket_elements = 10'000;  // some a layer
  config.lr = {.lr = 1e-3, .style = DecayStyle::kConstant};
  return config;
}

TrainConfig grpo(int64_t max_tokens = 50) { return with_batching(grpo_config(), 12, max_tokens); }

TrainBatch groups() { return make_train_batch(made_up_groups(3, 4, 320), {}); }

const std::vector<ParallelLayout> kTensor{
    {.tp = 2},
    {.tp = 4},
    {.tp = 2, .sequence_parallel = true},
    {.tp = 4, .sequence_parallel = true},
    {.dp = 2, .tp = 2},
    {.dp = 2, .tp = 2, .sequence_parallel = true},
    {.dp = 4, .tp = 2, .sequence_parallel = true},
    {.dp = 2, .tp = 4},
};

const std::vector<ParallelLayout> kContext{
    {.cp = 2},
    {.cp = 4},
    {.cp = 8},
    {.cp = 2, .contiguous_context = true},
    {.cp = 4, .contiguous_context = true},
    {.dp = 2, .cp = 2},
    {.dp = 2, .cp = 4, .contiguous_context = true},
    {.tp = 2, .cp = 2},
    {.tp = 2, .cp = 4, .sequence_parallel = true},
    {.dp = 2, .tp = 2, .cp = 2, .sequence_parallel = true},
};

const std::vector<ParallelLayout> kPipeline{
    {.pp = 2},
    {.pp = 4},
    {.pp = 8},
    {.pp = 2, .chunks = 2},
    {.pp = 2, .chunks = 4},
    {.pp = 4, .chunks = 2},
    {.pp = 2, .first_layers = 3},
    {.pp = 3, .first_layers = 1, .last_layers = 3},
    {.pp = 2, .chunks = 2, .last_layers = 2},
    {.dp = 2, .pp = 2},
    {.dp = 2, .pp = 4},
    {.tp = 2, .pp = 2, .sequence_parallel = true, .chunks = 2},
    {.pp = 2, .cp = 2, .chunks = 2},
    {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true},
    {.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true},
    {.dp = 2, .tp = 1, .pp = 2, .cp = 2, .contiguous_context = true, .chunks = 2},
};

TEST(LayoutInvariance, TensorParallelRanks) {
  const Scratch model;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  expect_layout_invariant(model.path, groups(), grpo(), kTensor);
}

TEST(LayoutInvariance, ContextParallelRanks) {
  const Scratch model;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  expect_layout_invariant(model.path, groups(), grpo(), kContext);
}

TEST(LayoutInvariance, PipelineStages) {
  const Scratch model;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  expect_layout_invariant(model.path, groups(), grpo(), kPipeline);
}

/// One of each kind, and all kinds together.
const std::vector<ParallelLayout> kSome{
    {.dp = 2, .tp = 2, .sequence_parallel = true},
    {.cp = 4},
    {.pp = 4, .chunks = 2},
    {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true, .chunks = 2},
};

TEST(LayoutInvariance, OfAModelWithAHeadOfItsOwn) {
  const Scratch model;
  make_model(model.path, "qwen2", /*ties_embeddings=*/false);
  expect_layout_invariant(model.path, groups(), grpo(), kSome);
}

/// Of the mixers that are not grouped-query attention.
const std::vector<ParallelLayout> kOfOtherMixers{
    {.dp = 2, .tp = 2},
    {.cp = 2, .contiguous_context = true},
    {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true, .chunks = 2},
};

TEST(LayoutInvariance, OfLatentAttention) {
  const Scratch model;
  make_model(model.path, latent_model(4));
  expect_layout_invariant(model.path, groups(), grpo(), kOfOtherMixers);
}

TEST(LayoutInvariance, OfGatedDeltaNets) {
  const Scratch model;
  make_model(model.path, delta_model(4, 2));
  expect_layout_invariant(model.path, groups(), grpo(), kOfOtherMixers);
}

TEST(LayoutInvariance, OfALossOverSequencesAndWhitenedAdvantages) {
  const Scratch model;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  TrainConfig config = grpo();
  config.policy.objective = algo::SequenceClip{3e-4, 4e-4};
  config.policy.use_rollout_logprobs = false;
  config.normalize_advantages = true;
  config.reduction = algo::Reduction::kPerToken;
  expect_layout_invariant(model.path, groups(), config, kSome);
}

TEST(LayoutInvariance, OfLayersThatAreComputedAgain) {
  const Scratch model;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  TrainConfig config = grpo();
  config.recompute = model::Recompute::kFull;
  expect_layout_invariant(model.path, groups(), config, kSome);
}

TEST(LayoutInvariance, OfSupervisedTraining) {
  const Scratch model;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  TrainConfig config = with_batching({}, 6, 50);
  config.objective = Objective::kSupervised;
  std::vector<Sample> rows;
  for (Group& group : made_up_groups(2, 3, 320)) {
    for (Sample& sample : group.samples) rows.push_back(std::move(sample));
  }
  expect_layout_invariant(model.path, make_supervised_batch(rows), config, kSome);
}

/// What checkpoints hold at most.
const model::Precision kStored = model::Precision::of("float32");

struct Trained {
  std::vector<Metrics> metrics;
  std::map<std::string, Tensor> weights;
};

/// Two steps and a checkpoint when there is none in `root`, one more step otherwise; and the weights at
/// the start. Metrics are the same on all ranks.
Trained go_on(const std::filesystem::path& model, const std::filesystem::path& root,
              const TrainBatch& batch, TrainConfig config, const ParallelLayout& layout) {
  config.batching.dp = layout.dp;
  const auto ignore = [](const std::string&) {};
  const auto found = find_checkpoint(root, ignore);
  std::vector<Trained> of_rank(static_cast<std::size_t>(layout.world_size()));
  const SystemClock clock;
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    const auto network = model::load_network(found ? found->directory : model, kStored, mesh);
    Trainer trainer(*network, config, clock, {}, mesh);
    if (found) restore_trainer(*found, trainer, ignore);
    Trained& own = of_rank[static_cast<std::size_t>(mesh.rank())];
    const auto whole =
        mesh.rank() == 0 ? model::make_blank_network(network->config(), kStored) : nullptr;
    gather_weights(trainer, whole.get());
    if (whole) {
      for (const model::NamedWeight& weight : whole->weights().tensors())
        own.weights[weight.name] = model::Weights::view(whole->weights().flat(), weight).clone();
    }
    for (int step = 0; step < (found ? 1 : 2); ++step) {
      const TrainReport report = trainer.train(trainer.divide(batch).at(mesh.at().dp));
      for (const StepReport& of_step : report.steps) own.metrics.push_back(of_step.metrics);
      own.metrics.push_back(report.rollout);
    }
    if (found) return;
    if (mesh.rank() == 0) {
      save_checkpoint({.root = root}, 2, trainer, {});
    } else {
      join_save(trainer, true);
    }
  });
  for (const Trained& other : of_rank) EXPECT_EQ(other.metrics, of_rank[0].metrics);
  return of_rank[0];
}

/// Written on `from`, read by each of `readers`: the same weights, and the same next step.
void expect_resumed_anywhere(const ParallelLayout& from,
                             const std::vector<ParallelLayout>& readers) {
  const Scratch model, root;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  TrainConfig config = grpo();
  config.policy.kl_loss.reset();
  const TrainBatch batch = groups();
  go_on(model.path, root.path, batch, config, from);
  const Trained plain = go_on(model.path, root.path, batch, config, from);
  for (const ParallelLayout& reader : readers) {
    SCOPED_TRACE(name_of(reader));
    const Trained other = go_on(model.path, root.path, batch, config, reader);
    for (const auto& [name, weight] : plain.weights)
      EXPECT_TRUE(at::equal(other.weights.at(name), weight)) << name;
    ASSERT_EQ(other.metrics.size(), plain.metrics.size());
    for (std::size_t i = 0; i < plain.metrics.size(); ++i) {
      for (const auto& [name, value] : plain.metrics[i])
        EXPECT_NEAR(other.metrics[i].at(name), value, 1e-4 * std::max(1.0, std::abs(value)))
            << name;
    }
  }
}

TEST(LayoutCheckpoint, OfDataAndTensorParallelRanksIsReadByAnyLayout) {
  expect_resumed_anywhere({.dp = 2, .tp = 2}, {{.tp = 4},
                                               {},
                                               {.dp = 4},
                                               {.tp = 2, .cp = 2, .sequence_parallel = true},
                                               {.tp = 2, .pp = 2}});
}

TEST(LayoutCheckpoint, OfPipelineStagesIsReadByAnyLayout) {
  expect_resumed_anywhere({.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .chunks = 2},
                          {{.tp = 4}, {}, {.dp = 8}, {.pp = 4}});
}

}  // namespace
}  // namespace slime::parity
