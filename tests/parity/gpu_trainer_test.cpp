/// The trainer on a GPU against the one on the CPU: every kind of run, checkpoints, and gradients
/// that were given back in between.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/clock.h"
#include "fixture_models.h"
#include "kernels/gpu/for_tests.h"
#include "train/checkpoint.h"

namespace slime::train {
namespace {

namespace fs = std::filesystem;
using model::Precision;

/// Two prompts of two responses each; the first of each is the better one.
std::vector<Group> two_groups(int64_t seed) {
  std::vector<Group> groups;
  for (int64_t g = 0; g < 2; ++g) {
    Group group{g, {}};
    for (int64_t k = 0; k < 2; ++k) {
      Sample sample;
      sample.group = g;
      sample.ordinal = 2 * g + k;
      sample.status = Status::kCompleted;
      sample.prompt_length = 20;
      for (int64_t t = 0; t < 20; ++t)
        sample.tokens.push_back(static_cast<TokenId>((10 + 7 * g + t + seed) % 300));
      for (int64_t t = 0; t < 5 + k; ++t)
        sample.tokens.push_back(static_cast<TokenId>((50 + 9 * k + 3 * t + seed) % 300));
      sample.reward = k == 0 ? 1.0 : 0.0;
      group.samples.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

TrainConfig grpo() {
  TrainConfig config;
  config.batching.global_batch_size = 4;
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = 64;
  config.lr = {.lr = 1e-3, .style = DecayStyle::kConstant};
  return config;
}

TrainConfig with_reference() {
  TrainConfig config = grpo();
  config.policy.kl_loss = algo::KlLoss{.type = algo::KlType::kK3, .coef = 0.1};
  config.ref_update_interval = 2;
  return config;
}

TrainConfig with_old_actor() {
  TrainConfig config = grpo();
  config.keep_old_actor = true;
  return config;
}

TrainConfig ppo() {
  TrainConfig config = grpo();
  config.advantage = algo::Gae{};
  config.critic = CriticConfig{};
  config.critic->lr = config.lr;
  return config;
}

TrainConfig with_recompute() {
  TrainConfig config = grpo();
  config.recompute = model::Recompute::kFull;
  return config;
}

TrainConfig with_selective_recompute() {
  TrainConfig config = grpo();
  config.recompute = model::Recompute::kSelective;
  return config;
}

TrainConfig with_state_on_host() {
  TrainConfig config = grpo();
  config.adam.on_host = true;
  return config;
}

struct Trained {
  Trained(const fs::path& directory, const Precision& precision, const TrainConfig& config)
      : network(model::load_network(directory, precision)) {
    const auto another = [&] { return model::load_network(directory, precision); };
    OtherNetworks others;
    if (needs_reference(config)) others.reference = another();
    if (config.keep_old_actor) others.old_actor = another();
    if (config.critic) others.critic = another();
    trainer = std::make_unique<Trainer>(*network, config, clock, std::move(others));
  }
  void train(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      trainer->train(make_train_batch(two_groups(step), {}));
      trainer->weights_published();
      trainer->release_gradients();
    }
  }
  Tensor weights() { return network->weights().flat().cpu().to(at::kDouble); }

  SystemClock clock;
  std::unique_ptr<model::Network> network;
  std::unique_ptr<Trainer> trainer;
};

struct Case {
  const char* name;
  TrainConfig (*config)();
  const char* model = "qwen3";

  fs::path directory() const { return golden_models::directory(model); }
};

class GpuTrainer : public ::testing::TestWithParam<Case> {};

void expect_moves_alike(const TrainConfig& config, const fs::path& model) {
  Trained cpu(model, Precision::of("float32"), config),
      gpu(model, Precision::on_gpu("float32"), config);
  const Tensor start = cpu.weights();
  cpu.train(0, 3);
  gpu.train(0, 3);
  // Adam divides by the root of the second moment, so the smallest gradients move as far as the
  // largest and their signs are rounding: weights are compared by how far they moved together.
  const Tensor moved = cpu.weights() - start;
  EXPECT_GT(moved.norm().item<double>(), 0.1);
  EXPECT_LT((gpu.weights() - cpu.weights()).norm().item<double>(),
            0.02 * moved.norm().item<double>());
}

TEST_P(GpuTrainer, MovesTheWeightsAsTheCpuDoes) {
  SLIME_NEEDS_GPU();
  expect_moves_alike(GetParam().config(), GetParam().directory());
}

bool looks_back_otherwise(const model::ModelConfig& config) {
  return golden_models::has_windows(config) || golden_models::has_delta_nets(config);
}

class GpuTrainerOfKinds : public ::testing::TestWithParam<const char*> {};

/// Prompts are longer than the windows, which end in them.
TEST_P(GpuTrainerOfKinds, MovesTheWeightsAsTheCpuDoes) {
  SLIME_NEEDS_GPU();
  expect_moves_alike(grpo(), golden_models::directory(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTrainerOfKinds,
                         ::testing::ValuesIn(golden_models::kinds(looks_back_otherwise)),
                         golden_models::name_of);

TEST_P(GpuTrainer, ResumesFromACheckpointBitForBit) {
  SLIME_NEEDS_GPU();
  const fs::path root = fs::temp_directory_path() / ("slime_gpu_" + std::to_string(::getpid()));
  fs::remove_all(root);
  const TrainConfig config = GetParam().config();
  const fs::path model = GetParam().directory();
  const Precision precision = Precision::on_gpu("bfloat16");
  Trained straight(model, precision, config), first(model, precision, config);
  straight.train(0, 4);
  first.train(0, 2);
  save_checkpoint({.root = root, .model_source = model}, 2, *first.trainer, {});
  const auto found = find_checkpoint(root, [](const std::string&) {});
  ASSERT_TRUE(found.has_value());
  Trained second(found->directory, precision, config);
  if (second.trainer->reference() != nullptr)
    second.trainer->reference()->weights().flat().zero_();  // what the checkpoint brings
  restore_trainer(*found, *second.trainer, 0, [](const std::string&) {});
  second.train(2, 4);
  EXPECT_TRUE(at::equal(second.weights(), straight.weights()));
  fs::remove_all(root);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, GpuTrainer,
    ::testing::Values(Case{"Grpo", grpo}, Case{"Reference", with_reference},
                      Case{"OldActor", with_old_actor}, Case{"Ppo", ppo},
                      Case{"Recompute", with_recompute},
                      Case{"Selective", with_selective_recompute},
                      Case{"StateOnHost", with_state_on_host}, Case{"Experts", grpo, "qwen3_moe"},
                      Case{"SharedExpert", with_recompute, "qwen2_moe"},
                      Case{"Latent", grpo, "deepseek_v3"},
                      Case{"LatentSelective", with_selective_recompute, "deepseek_v3"},
                      Case{"Groups", grpo, "glm4_moe"}, Case{"Sparse", grpo, "deepseek_v32"},
                      Case{"SparseRecompute", with_recompute, "glm_moe_dsa"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace slime::train
