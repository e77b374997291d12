// Loss and full gradient are those of one rank on every layout: data, tensor (with sequence
// parallelism), context and pipeline parallel ranks, and all of them together. Ranks are threads here,
// each with its part of the network, connected as processes are.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layer_kinds.h"
#include "layout_cases.h"

namespace slime::parity {
namespace {

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

/// Of a family whose heads are shares of the hidden size, alike in all layers.
void make_model_like(const std::filesystem::path& directory, const char* fixture) {
  model::ModelConfig config = model::read_model_config(kModels + fixture);
  config.raw = {};
  config.num_layers = 8;
  config.rotary_dim = config.rotary_dim * config.num_heads / 8;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = config.hidden_size / 8;
  config.window.assign(8, config.window.front());
  make_model(directory, config);
}

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

/// With slices, in each way.
const std::vector<ParallelLayout> kWithTensor{
    {.tp = 2},
    {.tp = 4, .sequence_parallel = true},
    {.dp = 2, .tp = 2, .sequence_parallel = true},
    {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true, .chunks = 2},
};

TEST(LayoutInvariance, OfAModelWithAHeadOfItsOwn) {
  const Scratch model;
  make_model(model.path, "qwen2", /*ties_embeddings=*/false);
  expect_layout_invariant(model.path, groups(), grpo(), kSome);
}

TEST(LayoutInvariance, OfCappedScoresAndLogits) {
  const Scratch model;
  make_model(model.path, "gemma2", /*ties_embeddings=*/true);
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

/// Stages begin with layers that have an indexer.
const std::vector<ParallelLayout> kOfChoices{
    {.dp = 2, .tp = 2},
    {.cp = 2},
    {.cp = 4, .contiguous_context = true},
    {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true},
};

TEST(LayoutInvariance, OfSparseAttention) {
  const Scratch model;
  make_model(model.path, sparse_model(4));
  expect_layout_invariant(model.path, groups(), grpo(), kOfChoices);
}

TEST(LayoutInvariance, OfSparseAttentionThatIsComputedAgain) {
  const Scratch model;
  make_model(model.path, sparse_model(4));
  TrainConfig config = grpo();
  config.recompute = model::Recompute::kFull;
  expect_layout_invariant(model.path, groups(), config, {{.tp = 2, .cp = 2}});
}

TEST(LayoutInvariance, OfGatedDeltaNets) {
  const Scratch model;
  make_model(model.path, delta_model(4, 2));
  expect_layout_invariant(model.path, groups(), grpo(), kOfOtherMixers);
}

TEST(LayoutInvariance, OfMatricesThatFilesHoldAsOneTensor) {
  const Scratch model;
  make_model_like(model.path, "phi3");
  expect_layout_invariant(model.path, groups(), grpo(), kWithTensor);
}

TEST(LayoutInvariance, OfNormsOverAllHeads) {
  const Scratch model;
  make_model_like(model.path, "olmo2");
  expect_layout_invariant(model.path, groups(), grpo(), kWithTensor);
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

TEST(LayoutCheckpoint, OfDataAndTensorParallelRanksIsReadByAnyLayout) {
  const Scratch model;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  expect_resumed_anywhere(model.path, grpo(), {.dp = 2, .tp = 2},
                          {{.tp = 4},
                           {},
                           {.dp = 4},
                           {.tp = 2, .cp = 2, .sequence_parallel = true},
                           {.tp = 2, .pp = 2}});
}

TEST(LayoutCheckpoint, OfMatricesThatFilesHoldAsOneTensorIsReadByAnyLayout) {
  const Scratch model;
  make_model_like(model.path, "phi3");
  expect_resumed_anywhere(model.path, grpo(), {.dp = 2, .tp = 2},
                          {{.tp = 4}, {}, {.tp = 2, .pp = 2, .sequence_parallel = true}});
}

TEST(LayoutCheckpoint, OfPipelineStagesIsReadByAnyLayout) {
  const Scratch model;
  make_model(model.path, "qwen3", /*ties_embeddings=*/true);
  expect_resumed_anywhere(model.path, grpo(),
                          {.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .chunks = 2},
                          {{.tp = 4}, {}, {.dp = 8}, {.pp = 4}});
}

}  // namespace
}  // namespace slime::parity
