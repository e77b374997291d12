// Adapters on every layout: loss and gradients are those of one rank, and a checkpoint of one layout is gone on
// with on another.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "core/xxhash64.h"
#include "layer_kinds.h"
#include "layout_cases.h"
#include "model/adapter_files.h"
#include "model/adapters.h"

namespace slime::parity {
namespace {

/// Four layers that eight ranks can divide, with experts in three where the family has some.
void widen(model::ModelConfig& config) {
  config.num_layers = 4;
  config.window.assign(4, 0);
  if (config.latent.kv_rank == 0) {
    config.num_heads = 8;
    config.num_kv_heads = 4;
    config.rotary_dim = config.rotary_dim == config.head_dim ? 16 : 8;
    config.head_dim = 16;
  }
  if (config.has_experts()) {
    model::ExpertsConfig& experts = config.experts;
    experts.in_layer = {false, true, true, true};
    experts.count = 8;
    experts.per_token = 3;
    experts.width = 24;
    experts.shared_width = experts.shared_width == 0 ? 0 : 24;
    if (experts.num_groups > 1) experts.num_groups = 4;
  }
}

void save_uniform(const std::filesystem::path& directory, const model::ModelConfig& config) {
  at::manual_seed(3);
  const auto network = model::make_uniform_network(config, model::Precision::of("float32"), 0.25);
  model::save_network(*network, directory);
}

void make_model(const std::filesystem::path& directory, const char* like) {
  model::ModelConfig config = model::read_model_config(kModels + like);
  config.raw = {};
  config.carried_prefixes.clear();
  config.drafts = {};
  config.vocab_size = 320;
  if (!config.experts.are_in_turns) widen(config);  // the others say too much of themselves
  save_uniform(directory, config);
}

model::AdapterConfig all_matrices() {
  model::AdapterConfig config;
  config.rank = 3;
  config.alpha = 6;
  config.targets = {"all-linear"};
  return config;
}

/// Numbers that are functions of the names alone; neither half is zero.
void fill(model::Weights& weights) {
  for (const model::NamedWeight& weight : weights.tensors()) {
    const at::Generator generator = at::detail::createCPUGenerator(xxhash64(weight.name));
    const Tensor whole = at::empty(weight.full_shape, at::kDouble).uniform_(-0.3, 0.3, generator);
    model::Weights::view(weights.flat(), weight).copy_(weight.slices.of(whole));
  }
}

Prepare with(const model::AdapterConfig& config) {
  return [config](model::Network& network, const comm::Mesh& mesh) {
    model::add_adapters(network, model::form_of(config, network.config()), mesh);
    fill(network.trained());
  };
}

TrainConfig policy() {
  TrainConfig config = grpo();
  config.policy.kl_loss.reset();
  return config;
}

TEST(AdapterLayouts, OfDenseModelsAreThoseOfOneRank) {
  const Scratch model;
  make_model(model.path, "qwen3");
  model::AdapterConfig adapters = all_matrices();
  adapters.saved = {"input_layernorm"};
  TrainConfig config = policy();
  expect_layout_invariant(model.path, groups(), config,
                          {{.dp = 2},
                           {.tp = 2},
                           {.tp = 2, .sequence_parallel = true},
                           {.cp = 2},
                           {.pp = 2},
                           {.dp = 2, .pp = 2, .chunks = 2},
                           {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true}},
                          with(adapters));
  for (const model::Recompute how : {model::Recompute::kSelective, model::Recompute::kFull}) {
    TrainConfig again = config;
    again.recompute = how;
    expect_same(gradients(model.path, groups(), again, {}, with(adapters)),
                gradients(model.path, groups(), config, {}, with(adapters)));
  }
}

TEST(AdapterLayouts, OfOtherMixersAreThoseOfOneRank) {
  for (const model::ModelConfig& config : {delta_model(4, 2), latent_model(4)}) {
    SCOPED_TRACE(config.model_type);
    const Scratch model;
    save_uniform(model.path, config);
    expect_layout_invariant(model.path, groups(), policy(),
                            {{.tp = 2}, {.tp = 2, .sequence_parallel = true}, {.dp = 2, .pp = 2}},
                            with(all_matrices()));
  }
}

TEST(AdapterLayouts, OfHeadAndEmbeddingAreThoseOfOneRank) {
  const Scratch model;
  make_model(model.path, "qwen3");
  model::AdapterConfig adapters = all_matrices();
  adapters.targets = {"lm_head", "embed_tokens", "q_proj"};
  expect_layout_invariant(model.path, groups(), policy(),
                          {{.tp = 2}, {.tp = 2, .sequence_parallel = true}, {.pp = 2}},
                          with(adapters));
}

class AdapterExpertLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(AdapterExpertLayouts, AreThoseOfOneRank) {
  const Scratch model;
  make_model(model.path, GetParam());
  const int64_t experts = model::read_model_config(model.path).experts.count;
  std::vector<ParallelLayout> layouts{{.dp = 2, .ep = 2},
                                      {.tp = 2},
                                      {.tp = 2, .etp = 2, .sequence_parallel = true},
                                      {.dp = 2, .tp = 2, .ep = 4, .sequence_parallel = true},
                                      {.dp = 2, .pp = 2, .ep = 2}};
  std::erase_if(layouts, [&](const ParallelLayout& layout) { return experts % layout.ep != 0; });
  expect_layout_invariant(model.path, groups(), policy(), layouts, with(all_matrices()));
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterExpertLayouts,
                         ::testing::Values("qwen3_moe", "deepseek_v3", "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AdapterLayouts, ExpertsThatAreDividedAndSlicedAreRefusedByName) {
  const Scratch model;
  make_model(model.path, "qwen3_moe");
  try {
    gradients(model.path, groups(), policy(), {.dp = 2, .tp = 2, .ep = 2, .etp = 2},
              with(all_matrices()));
    FAIL() << "it was taken";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("mlp.experts.0."), std::string::npos) << error.what();
  }
}

/// The reference is the network without its adapter.
TEST(AdapterReference, IsTheModelWithoutIt) {
  const Scratch model;
  make_model(model.path, "qwen3");
  TrainConfig config = grpo();
  const SystemClock clock;
  const auto sums_of = [&](bool has_own_reference) {
    const auto network = model::load_network(model.path, kExact);
    with(all_matrices())(*network, comm::Mesh::single());
    OtherNetworks others;
    if (has_own_reference) others.reference = model::load_network(model.path, kExact);
    Trainer trainer(*network, config, clock, std::move(others));
    return trainer.accumulate_gradients(groups());
  };
  const algo::MetricSums own = sums_of(true), off = sums_of(false);
  EXPECT_GT(std::abs(own.at("kl_loss")), 1e-6);
  for (const auto& [name, value] : own)
    EXPECT_NEAR(off.at(name), value, 1e-10 * std::max(1.0, std::abs(value))) << name;
}

struct Went {
  std::map<std::string, Tensor> weights;
  std::vector<Metrics> metrics;
};

/// Two steps and a checkpoint, or one more step after that; adapters at the beginning of it.
Went go_on_with_adapters(const std::filesystem::path& model, const std::filesystem::path& root,
                         const ParallelLayout& layout) {
  TrainConfig config = policy();
  config.batching.dp = layout.dp;
  const auto ignore = [](const std::string&) {};
  const auto found = find_checkpoint(root, ignore);
  Went went;
  const SystemClock clock;
  const TrainBatch batch = groups();
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    const auto network = model::load_network(model, kStored, mesh);
    if (found) {
      model::load_adapters(*network, found->directory, mesh);
    } else {
      with(all_matrices())(*network, mesh);
    }
    Trainer trainer(*network, config, clock, {}, mesh);
    if (found) restore_trainer(*found, trainer, 0, ignore);
    gather_weights(trainer, [&](const std::string& name, const Tensor& tensor) {
      went.weights[name] = tensor.clone();
    });
    for (int step = 0; step < (found ? 1 : 2); ++step) {
      const TrainReport report = trainer.train(trainer.divide(batch).at(mesh.at().dp));
      if (mesh.rank() != 0) continue;
      for (const StepReport& of_step : report.steps) went.metrics.push_back(of_step.metrics);
    }
    if (found) return;
    if (mesh.rank() == 0) {
      save_checkpoint({.root = root}, 2, trainer, {});
    } else {
      join_save(trainer, true);
    }
  });
  return went;
}

TEST(AdapterCheckpoints, AreGoneOnWithOnAnotherLayout) {
  const Scratch model, root;
  make_model(model.path, "qwen3_moe");
  go_on_with_adapters(model.path, root.path, {.dp = 2, .ep = 2});
  const auto found = find_checkpoint(root.path, [](const std::string&) {});
  ASSERT_TRUE(found);
  EXPECT_TRUE(model::has_adapter(found->directory));
  EXPECT_FALSE(std::filesystem::exists(found->directory / "config.json"));
  const Went plain = go_on_with_adapters(model.path, root.path, {});
  for (const ParallelLayout& layout : std::vector<ParallelLayout>{{.tp = 2}, {.dp = 2, .pp = 2}}) {
    SCOPED_TRACE(name_of(layout));
    const Went other = go_on_with_adapters(model.path, root.path, layout);
    ASSERT_EQ(other.weights.size(), plain.weights.size());
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

}  // namespace
}  // namespace slime::parity
