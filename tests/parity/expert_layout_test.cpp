// Loss and full gradient of models with experts are those of one rank on every layout: experts divided
// among ranks, sliced over ranks, whole on ranks with slices of the other layers, and with context
// parallel ranks and pipeline stages beside all that.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "layout_cases.h"

namespace slime::parity {
namespace {

void save_uniform(const model::ModelConfig& config, const std::filesystem::path& directory) {
  at::manual_seed(3);
  // A file has float32 at most; what is read is computed in float64.
  const auto network = model::make_uniform_network(config, model::Precision::of("float32"), 0.25);
  for (const model::NamedConstant& constant : network->weights().constants())
    Tensor(constant.value).uniform_(-0.01, 0.01);
  model::save_network(*network, directory);
}

/// A model that eight ranks can divide: four layers, eight heads over four of keys and values, eight
/// experts in three of the layers.
void make_expert_model(const std::filesystem::path& directory, const char* like) {
  model::ModelConfig config = model::read_model_config(kModels + like);
  config.raw = {};
  config.carried_prefixes.clear();
  config.drafts = {};
  config.vocab_size = 320;
  config.num_layers = 4;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.rotary_dim = config.rotary_dim == config.head_dim ? 16 : 8;
  config.head_dim = 16;
  config.window.assign(4, 0);
  model::ExpertsConfig& experts = config.experts;
  experts.in_layer = {false, true, true, true};
  experts.count = 8;
  experts.per_token = 3;
  const int64_t width = 24;
  experts.shared_width = experts.shared_width == 0 ? 0 : width;
  experts.width = width;
  if (experts.num_groups > 1) experts.num_groups = 4;
  save_uniform(config, directory);
}

/// The fixture's shape, with a vocabulary for the samples.
void make_model_like(const std::filesystem::path& directory, const char* fixture) {
  model::ModelConfig config = model::read_model_config(kModels + fixture);
  config.raw = {};
  config.vocab_size = 320;
  save_uniform(config, directory);
}

/// Without a reference, which would be one more pass.
TrainConfig policy(int64_t max_tokens = 50) {
  TrainConfig config = grpo(max_tokens);
  config.policy.kl_loss.reset();
  return config;
}

/// Each kind of experts with each kind of ranks that they may be divided among.
const std::vector<ParallelLayout> kLayouts{
    {.dp = 2, .ep = 2},
    {.dp = 4, .ep = 2},
    {.tp = 2},
    {.tp = 2, .etp = 2, .sequence_parallel = true},
    {.tp = 2, .ep = 2},
    {.dp = 2, .tp = 2, .ep = 2, .etp = 2},
    {.dp = 2, .tp = 2, .ep = 4, .sequence_parallel = true},
    {.dp = 2, .cp = 2, .ep = 4},
    {.cp = 2, .ep = 2},
    {.dp = 2, .pp = 2, .ep = 2},
    {.dp = 2, .pp = 2, .ep = 2, .chunks = 2},
    {.tp = 2, .pp = 2, .cp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
    {.dp = 2, .tp = 2, .cp = 2, .ep = 8, .sequence_parallel = true},
    {.dp = 2, .tp = 2, .pp = 2, .ep = 2, .etp = 2},
};

/// A few of them.
const std::vector<ParallelLayout> kSome{
    {.dp = 2, .tp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
    {.tp = 2, .pp = 2, .cp = 2, .ep = 2},
};
const std::vector<ParallelLayout> kOne{{.dp = 2, .tp = 2, .ep = 4}};

TEST(ExpertLayout, SoftmaxRouters) {
  const Scratch model;
  make_expert_model(model.path, "qwen3_moe");
  expect_layout_invariant(model.path, groups(), policy(), kLayouts);
}

TEST(ExpertLayout, RoutersWithSelectionBiasesAndASharedExpert) {
  const Scratch model;
  make_expert_model(model.path, "glm4_moe");
  expect_layout_invariant(model.path, groups(), policy(), kSome);
}

TEST(ExpertLayout, ASharedExpertWithAGate) {
  const Scratch model;
  make_expert_model(model.path, "qwen2_moe");
  expect_layout_invariant(model.path, groups(), policy(), kOne);
}

TEST(ExpertLayout, BesideLatentAttention) {
  const Scratch model;
  make_model_like(model.path, "kimi_k2");
  expect_layout_invariant(model.path, groups(), policy(), kOne);
}

TEST(ExpertLayout, LayersThatAreComputedAgain) {
  const Scratch model;
  make_expert_model(model.path, "glm4_moe");
  TrainConfig config = policy();
  config.recompute = model::Recompute::kFull;
  expect_layout_invariant(model.path, groups(), config, kOne);
}

TEST(ExpertLayout, LossesOfRouters) {
  const Scratch model;
  make_expert_model(model.path, "qwen3_moe");
  TrainConfig config = policy();
  // Their means are over a micro-batch: these are the same with one rank and two.
  config.batching.use_dynamic_batch_size = false;
  config.batching.micro_batch_size = 6;
  config.router_losses = {model::RouterLosses::Balance::kSequence, 0.5, 0.2};
  expect_layout_invariant(model.path, groups(), config, kSome);
}

/// Choices that routers would not make, alike where sequences are.
void choose_experts(TrainBatch& batch) {
  for (TrainSample& sample : batch.samples) {
    sample.routed_experts.clear();
    for (std::size_t t = 0; t + 1 < sample.tokens.size(); ++t) {
      for (int layer = 0; layer < 4; ++layer) {
        const auto first = static_cast<int>(5 * t) + 3 * sample.tokens[t] + layer;
        for (const int step : {0, 2, 5})
          sample.routed_experts.push_back(
              static_cast<int16_t>(layer == 0 ? 0 : (first + step) % 8));
      }
    }
  }
}

TEST(ExpertLayout, ChoicesOfTheEngineAreVisitedAgain) {
  const Scratch model;
  make_expert_model(model.path, "qwen3_moe");
  TrainBatch batch = groups();
  choose_experts(batch);
  TrainConfig config = policy();
  const WholeOutcome free = gradients(model.path, batch, config, {});
  config.routing_replay = TrainConfig::RoutingReplay::kEngine;
  const WholeOutcome replayed = gradients(model.path, batch, config, {});
  EXPECT_GT(std::abs(free.norm - replayed.norm), 1e-3 * free.norm);
  for (const ParallelLayout& layout : kOne) {
    SCOPED_TRACE(name_of(layout));
    expect_same(gradients(model.path, batch, config, layout), replayed);
  }
}

TEST(ExpertLayout, ChoicesOfThePassBeforeAreVisitedAgain) {
  const Scratch model;
  make_expert_model(model.path, "glm4_moe");
  TrainConfig config = policy();
  config.policy.use_rollout_logprobs = false;
  config.routing_replay = TrainConfig::RoutingReplay::kOldPass;
  expect_layout_invariant(model.path, groups(), config, kOne);
}

TEST(ExpertLayout, ExpertsThatFilesHoldAsOneTensor) {
  // With biases, and gates and ups in turns.
  const Scratch model;
  make_model_like(model.path, "gpt_oss");
  expect_layout_invariant(model.path, groups(), policy(),
                          {{.dp = 3, .tp = 2, .ep = 3},
                           {.tp = 2, .etp = 2},
                           {.dp = 2, .etp = 2},
                           {.tp = 2, .etp = 2, .sequence_parallel = true},
                           {.dp = 3, .tp = 2, .ep = 3, .etp = 2, .sequence_parallel = true},
                           {.dp = 2, .tp = 2, .pp = 2, .ep = 2, .etp = 2, .first_layers = 1}});
}

TEST(ExpertLayout, ExpertsThatFilesHoldAsOneTensorWithGatesBeforeUps) {
  const Scratch model;
  make_model_like(model.path, "qwen3_5_moe");
  expect_layout_invariant(model.path, groups(), policy(),
                          {{.dp = 2, .tp = 2, .ep = 4},
                           {.tp = 2, .etp = 2},
                           {.dp = 2, .etp = 2},
                           {.tp = 2, .etp = 2, .sequence_parallel = true},
                           {.dp = 2, .tp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
                           {.dp = 2, .tp = 2, .pp = 2, .ep = 2, .etp = 2}});
}

TEST(ExpertLayout, BesideNormsOverAllHeads) {
  const Scratch model;
  make_model_like(model.path, "minimax_m2");
  expect_layout_invariant(model.path, groups(), policy(),
                          {{.dp = 2, .tp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
                           {.tp = 2, .pp = 2, .cp = 2, .ep = 2, .first_layers = 1}});
}

TEST(ExpertLayout, RanksWithFewerMicroBatchesThanOthers) {
  const Scratch model;
  make_expert_model(model.path, "glm4_moe");
  // Rewards of groups that are alike have no backward, and there is nothing else to learn.
  TrainConfig config = policy(30);
  config.policy.entropy_coef = 0;
  TrainBatch batch = groups();
  for (std::size_t i = 0; i < 6; ++i) batch.samples[i].reward = 0;
  expect_layout_invariant(model.path, batch, config,
                          {{.dp = 2, .ep = 2}, {.dp = 4, .tp = 2, .ep = 4, .etp = 2}});
}

TEST(ExpertParts, MakeUpTheWhole) {
  const auto directory = kModels + "qwen3_moe";
  const auto whole = model::load_network(directory, kStored);
  std::map<std::string, Tensor> of_whole;
  std::map<std::string, int64_t> missing;
  for (const model::NamedWeight& weight : whole->weights().tensors()) {
    of_whole[weight.name] = model::Weights::view(whole->weights().flat(), weight);
    missing[weight.name] = of_whole[weight.name].numel();
  }
  // Ranks 0 and 1 have slices of the first experts, 2 and 3 of the others.
  std::vector<std::unique_ptr<model::Network>> parts(4);
  on_mesh({.dp = 4, .ep = 2, .etp = 2}, [&](const comm::Mesh& mesh) {
    parts[static_cast<std::size_t>(mesh.rank())] = model::load_network(directory, kStored, mesh);
  });
  for (const auto& part : parts) {
    const model::Weights& weights = part->weights();
    for (const model::NamedWeight& weight : weights.tensors()) {
      const Tensor expected = weight.slices.of(of_whole.at(weight.name));
      EXPECT_TRUE(model::Weights::view(weights.flat(), weight).equal(expected)) << weight.name;
      const bool is_expert = weight.name.find(".experts.") != std::string::npos;
      EXPECT_EQ(weight.is_of_own_expert, is_expert) << weight.name;
      EXPECT_EQ(weight.offset >= weights.experts_begin(), is_expert) << weight.name;
      if (is_expert || part == parts[0]) missing[weight.name] -= expected.numel();
    }
  }
  for (const auto& [name, count] : missing) EXPECT_EQ(count, 0) << name;
}

TEST(ExpertParts, AreRefusedWhereExpertsDoNotDivide) {
  const model::ModelConfig config = model::read_model_config(kModels + "qwen3_moe");
  const auto problem_on = [&](const ParallelLayout& layout) {
    std::string problem = "none";
    on_mesh(layout, [&](const comm::Mesh& mesh) {
      try {
        model::make_blank_network(config, kStored, mesh);
      } catch (const ConfigError& error) {
        if (mesh.rank() == 0) problem = error.what();
      }
    });
    return problem;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(problem_on({.dp = 3, .ep = 3}),
              HasSubstr("expert parallelism of 3 does not divide the experts of a layer"));
  EXPECT_THAT(problem_on({.dp = 3, .etp = 3}),
              HasSubstr("expert tensor parallelism of 3 does not divide the width of an expert"));
}

TEST(ExpertLayoutCheckpoint, OfDividedExpertsIsReadByAnyLayout) {
  const Scratch model;
  make_expert_model(model.path, "glm4_moe");
  TrainConfig config = policy();
  config.router_bias_update_rate = 0.01;
  expect_resumed_anywhere(model.path, config, {.dp = 2, .tp = 2, .ep = 2, .etp = 2},
                          {{}, {.dp = 4, .ep = 4}, {.tp = 2, .pp = 2, .ep = 2}});
}

TEST(ExpertLayoutCheckpoint, OfSlicesOfExpertsInOneTensorIsReadByAnyLayout) {
  const Scratch model;
  make_model_like(model.path, "gpt_oss");
  expect_resumed_anywhere(model.path, policy(), {.dp = 2, .tp = 2, .ep = 2, .etp = 2},
                          {{}, {.dp = 3, .ep = 3}, {.tp = 2, .pp = 2, .etp = 2}});
}

TEST(ExpertLayoutCheckpoint, OfStagesWithSelectionBiasesIsReadByAnyLayout) {
  const Scratch model;
  make_expert_model(model.path, "glm4_moe");
  TrainConfig config = policy();
  config.router_bias_update_rate = 0.01;
  expect_resumed_anywhere(model.path, config, {.dp = 2, .pp = 2, .ep = 2}, {{}});
}

}  // namespace
}  // namespace slime::parity
