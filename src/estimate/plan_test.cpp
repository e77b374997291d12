/// Plans of made-up and of published models. One file because all are made of the shapes below.

#include "estimate/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/error.h"
#include "kernels/gpu/ordered_levels.h"
#include "model/adapters.h"

namespace slime::estimate {
namespace {

using ::testing::HasSubstr;

json::object dense_config() {
  return {{"model_type", "qwen3"},       {"architectures", json::array{"Qwen3ForCausalLM"}},
          {"hidden_size", 64},           {"intermediate_size", 96},
          {"num_hidden_layers", 4},      {"num_attention_heads", 4},
          {"num_key_value_heads", 2},    {"head_dim", 16},
          {"vocab_size", 320},           {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-6},        {"rope_theta", 10000.0},
          {"tie_word_embeddings", true}, {"hidden_act", "silu"},
          {"attention_bias", false},     {"torch_dtype", "bfloat16"}};
}

/// The published shape of GLM-4.5: 355 billion parameters, 32 of them active.
json::object glm45_config() {
  return {{"model_type", "glm4_moe"},
          {"architectures", json::array{"Glm4MoeForCausalLM"}},
          {"attention_bias", true},
          {"hidden_size", 5120},
          {"intermediate_size", 12288},
          {"moe_intermediate_size", 1536},
          {"num_hidden_layers", 92},
          {"num_attention_heads", 96},
          {"num_key_value_heads", 8},
          {"head_dim", 128},
          {"partial_rotary_factor", 0.5},
          {"first_k_dense_replace", 3},
          {"n_routed_experts", 160},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 8},
          {"n_group", 1},
          {"topk_group", 1},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", 2.5},
          {"use_qk_norm", true},
          {"num_nextn_predict_layers", 1},
          {"vocab_size", 151552},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 1000000.0},
          {"tie_word_embeddings", false},
          {"hidden_act", "silu"},
          {"torch_dtype", "bfloat16"}};
}

model::ModelConfig parsed(const json::object& config) {
  return model::parse_model_config(config, "config.json");
}

PlanConfig dense_plan() {
  PlanConfig config{.model = parsed(dense_config())};
  config.workload = {.prompts = 4,
                     .samples = 2,
                     .prompt_tokens = 100,
                     .response_tokens = 50,
                     .micro_batch_tokens = 200,
                     .recompute = model::Recompute::kNone};
  config.trainers = {.hosts = 1, .per_host = 2};
  return config;
}

const Collective& named(const std::vector<Collective>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Collective::name);
  if (found == all.end()) throw BugError("no message is called " + name);
  return *found;
}

TEST(PlanShape, CountsEveryParameterByItsHolder) {
  const ModelShape shape = shape_of(parsed(dense_config()));
  ASSERT_EQ(shape.blocks.size(), 4);
  // q 64 x 64, k and v 32 x 64 each, output 64 x 64; gate, up and down 3 x 96 x 64.
  EXPECT_EQ(shape.blocks[0].sliced, 4096 + 2 * 2048 + 4096 + 18432);
  EXPECT_EQ(shape.blocks[0].whole, 2 * 64 + 2 * 16);  // two norms, those of q and k
  EXPECT_EQ(shape.blocks[0].experts, 0);
  EXPECT_EQ(shape.embedding, 320 * 64);
  EXPECT_EQ(shape.head, 0);
  EXPECT_EQ(shape.blocks[0].cache.numbers_per_token(), 2 * 2 * 16);
}

TEST(PlanShape, OfGlm45HasItsPublishedSize) {
  const model::ModelConfig config = parsed(glm45_config());
  const ModelShape shape = shape_of(config);
  // The published 355 billion count the layer that predicts a second token too, 3.9 billion.
  EXPECT_NEAR(static_cast<double>(shape.parameters()), 353e9, 2e9);
  EXPECT_NEAR(static_cast<double>(shape.active_parameters(config)), 32e9, 1.5e9);
  EXPECT_EQ(shape.blocks[2].experts, 0);
  EXPECT_EQ(shape.blocks[3].experts, int64_t{160} * 3 * 1536 * 5120);
}

TEST(PlanMemory, OfOneDeviceIsWhatTheTrainerPredicts) {
  const model::ModelConfig config = parsed(dense_config());
  const ModelShape shape = shape_of(config);
  for (const model::Recompute recompute :
       {model::Recompute::kNone, model::Recompute::kSelective, model::Recompute::kFull}) {
    Workload workload = dense_plan().workload;
    workload.recompute = recompute;
    const TrainerMemory ours = stages_of(shape, {}, workload).front().memory;
    const model::Precision precision{.weights = at::kBFloat16, .activations = at::kBFloat16};
    const auto network = model::make_blank_network(config, precision);
    train::TrainConfig train;
    train.recompute = recompute;
    const TrainerMemory theirs =
        memory_of(rank_of(*network, precision, train, {}, workload.micro_batch_tokens));
    const int64_t padding = network->weights().num_elements() - network->weights().num_parameters();
    EXPECT_EQ(ours.weights + 2 * padding, theirs.weights);
    EXPECT_EQ(ours.gradients + 4 * padding, theirs.gradients);
    EXPECT_EQ(ours.optimizer + 12 * padding, theirs.optimizer);
    EXPECT_EQ(ours.activations, theirs.activations);
  }
}

TEST(PlanMemory, GradientsInOneOrderTakeScratchOnAGpu) {
  const model::ModelConfig config = parsed(dense_config());
  Workload workload = dense_plan().workload;
  const int64_t plain = stages_of(shape_of(config), {}, workload).front().memory.activations;
  workload.orders_backward = true;
  const int64_t ordered = stages_of(shape_of(config), {}, workload).front().memory.activations;
  const kernels::RotaryShape heads{config.num_heads, config.num_kv_heads, config.head_dim};
  const int64_t scratch = kernels::ordered_backward_bytes(heads, workload.micro_batch_tokens, 0);
  EXPECT_EQ(ordered - plain, scratch);
  EXPECT_GT(scratch, 0);
  const auto network = model::make_blank_network(config, kPlannedPrecision);
  train::TrainConfig train;
  train.recompute = workload.recompute;
  train.orders_backward = true;
  EXPECT_EQ(memory_of(rank_of(*network, kPlannedPrecision, train, {}, workload.micro_batch_tokens))
                .activations,
            ordered);
}

model::AdapterForm all_linear(const model::ModelConfig& config) {
  return model::form_of({.rank = 4, .alpha = 8, .targets = {"all-linear"}}, config);
}

TEST(PlanMemory, OfAdaptersIsTheModelOnceAndWhatTheirTrainerAllocates) {
  const model::ModelConfig config = parsed(dense_config());
  const model::AdapterForm form = all_linear(config);
  const ModelShape shape = shape_of(config, &form);
  // Of a block q 64 x 64, k and v 32 x 64, output 64 x 64; gate, up and down between 64 and 96.
  EXPECT_EQ(shape.adapters(), 4 * 4 * (128 + 96 + 96 + 128 + 3 * 160));
  Workload workload = dense_plan().workload;
  workload.has_reference = true;
  const TrainerMemory ours = stages_of(shape, {}, workload).front().memory;
  EXPECT_EQ(ours.others, 0) << "the reference is the model without its adapter";

  const model::Precision precision = model::Precision::of("bfloat16");
  const auto network = model::make_blank_network(config, precision);
  model::add_adapters(*network, form);
  const SystemClock clock;
  train::Trainer trainer(*network, {}, clock);
  network->trained().enable_grad();
  EXPECT_FALSE(network->weights().grad().defined()) << "the model's own weights stay";
  const auto padding = [](const model::Weights& weights) {
    return weights.num_elements() - weights.num_parameters();
  };
  const auto bytes = [](const Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); };
  int64_t moments = 0;
  for (const train::OwnedShard& own : trainer.optimizer().owned()) {
    EXPECT_TRUE(own.master.is_alias_of(network->trained().flat()));
    moments += bytes(own.first_moment) + bytes(own.second_moment);
  }
  const int64_t base = 2 * padding(network->weights()), own = 4 * padding(network->trained());
  EXPECT_EQ(ours.weights + base + own,
            bytes(network->weights().flat()) + bytes(network->trained().flat()));
  EXPECT_EQ(ours.gradients + own, bytes(network->trained().grad()));
  EXPECT_EQ(ours.optimizer + 2 * own, moments);
  const TrainerMemory theirs =
      memory_of(rank_of(*network, precision, {}, {}, workload.micro_batch_tokens));
  EXPECT_EQ(theirs.weights, ours.weights + base + own);
  EXPECT_EQ(theirs.gradients, ours.gradients + own);
  EXPECT_EQ(theirs.optimizer, ours.optimizer + 2 * own);
}

TEST(PlanMemory, TensorParallelRanksDivideOneHalfOfAPair) {
  const model::ModelConfig config = parsed(dense_config());
  const model::AdapterForm form = all_linear(config);
  const ModelShape shape = shape_of(config, &form);
  // At the stream: seven halves of 64. Behind it: q 64, k and v 32, into output 64, three times 96.
  EXPECT_EQ(shape.blocks[0].adapters.whole, 4 * 7 * 64);
  EXPECT_EQ(shape.blocks[0].adapters.sliced, 4 * (64 + 32 + 32 + 64 + 3 * 96));
}

TEST(PlanMemory, OfExpertsAdaptersIsSharedByFewerRanks) {
  TrainerRank rank{.dense = 80,
                   .experts = 40,
                   .adapters = 16,
                   .expert_adapters = 8,
                   .layout = {.dp = 2, .tp = 2, .cp = 2, .ep = 4},
                   .precision = {.weights = at::kBFloat16, .activations = at::kBFloat16},
                   .copies = 1};
  const TrainerMemory memory = memory_of(rank);
  EXPECT_EQ(memory.weights, 2 * 120 + 4 * 24);
  EXPECT_EQ(memory.gradients, 4 * 24);
  EXPECT_EQ(memory.optimizer, 8 * 16 / 4 + 8 * 8 / 2);
  EXPECT_EQ(memory.others, 2 * 120) << "a teacher has no adapter";
}

/// Qwen3-4B and 32B as published: dense, 36 and 64 layers.
PlanConfig plan_of_qwen3(int64_t hidden, int64_t width, int64_t layers, int64_t heads,
                         bool is_tied) {
  json::object config = dense_config();
  config["hidden_size"] = hidden;
  config["intermediate_size"] = width;
  config["num_hidden_layers"] = layers;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = 8;
  config["head_dim"] = 128;
  config["vocab_size"] = 151936;
  config["tie_word_embeddings"] = is_tied;
  PlanConfig plan{.model = parsed(config)};
  plan.adapters = model::form_of({.rank = 32, .alpha = 32, .targets = {"all-linear"}}, plan.model);
  plan.trainers = {.hosts = 1, .per_host = 1};
  plan.workload.has_reference = true;
  return plan;
}

TEST(PlanAdapters, Of4BTrainInTwelveGibibytesBesideTheModel) {
  const Plan plan = make_plan(plan_of_qwen3(2560, 9728, 36, 32, true));
  const TrainerMemory& memory = plan.best().stages.front().memory;
  EXPECT_LT(memory.peak() - 2 * plan.shape.parameters(), int64_t{12} << 30);
  EXPECT_EQ(plan.config.workload.micro_batch_tokens, 16384);
}

TEST(PlanAdapters, Of32BFitOnOneDeviceWhereAllWeightsDoNot) {
  PlanConfig config = plan_of_qwen3(5120, 25600, 64, 64, false);
  const Plan plan = make_plan(config);
  EXPECT_TRUE(plan.fits) << plan.best().largest_stage() / 1000000000 << " GB";
  EXPECT_THAT(to_table(plan), HasSubstr("adapters  268.4 million numbers in float32"));
  config.adapters.reset();
  EXPECT_FALSE(make_plan(config).fits);
}

TEST(PlanAdapters, OfEnginesLieInASecondBufferOnlyWhereTheyAreApart) {
  PlanConfig config = dense_plan();
  config.trainers = {1, 1};
  config.colocates = true;
  config.takes_turns = false;
  const Plan whole = make_plan(config);
  EXPECT_EQ(whole.engine.staged, whole.engine.weights) << "what a trainer trains meanwhile";
  EXPECT_THAT(to_table(whole), HasSubstr("the engines copy those that are trained"));
  config.adapters = all_linear(config.model);
  const Plan beside = make_plan(config);
  const int64_t adapters = 4 * beside.shape.adapters();
  EXPECT_EQ(beside.engine.staged, 0);
  EXPECT_EQ(beside.engine.weights, whole.engine.weights + adapters);
  config.takes_turns = true;
  const Plan in_turns = make_plan(config);
  EXPECT_EQ(in_turns.engine.staged, 0);
  EXPECT_EQ(in_turns.engine.weights, whole.engine.weights) << "the trainer's own";
  config.colocates = false;
  config.rollout_devices = 1;
  const Plan apart = make_plan(config);
  EXPECT_EQ(apart.engine.weights, whole.engine.weights + adapters);
  EXPECT_EQ(apart.engine.staged, adapters);
}

TEST(PlanAdapters, TravelAlone) {
  PlanConfig config = dense_plan();
  config.adapters = all_linear(config.model);
  config.trainers = {1, 1};
  config.colocates = false;
  config.rollout_devices = 1;
  const Plan plan = make_plan(config);
  EXPECT_EQ(plan.update.bytes, 4.0 * static_cast<double>(plan.shape.adapters()));
  config.wanted = {.tp = 1, .pp = 1, .cp = 1};
  config.trainers = {1, 2};
  EXPECT_EQ(named(make_plan(config).best().collectives, "gradients scattered (float32)").bytes,
            4.0 * static_cast<double>(plan.shape.adapters()) / 2);
}

TEST(PlanDrafts, DraftLayersHaveABlockAndAProjection) {
  const DraftShape layer = draft_layers_shape(parsed(glm45_config()));
  // Queries and output, keys and values, experts and the shared one, the router, [5120, 10240] of the projection.
  const double numbers = 2 * 5120.0 * 12288 + 2 * 5120.0 * 1024 + 161 * 3 * 5120.0 * 1536 +
                         160 * 5120.0 + 5120.0 * 10240;
  EXPECT_NEAR(static_cast<double>(layer.parameters), numbers, 1e5) << "norms and biases";
  EXPECT_TRUE(layer.are_layers);
  ASSERT_EQ(layer.blocks.size(), 1U);
  EXPECT_EQ(layer.blocks[0].cache.numbers_per_token(), 2 * 8 * 128);
}

TEST(PlanDrafts, TakeRoomOfEngines) {
  ModelShape shape = shape_of(parsed(dense_config()));
  const int64_t room = 10'000'000, without_tokens = 150;
  model::BlockNeeds needs;
  needs.cache = shape.blocks[0].cache;  // of two key heads
  for (const bool are_layers : {true, false}) {
    for (const EnginePlace place :
         {EnginePlace::kInTurns, EnginePlace::kBeside, EnginePlace::kApart}) {
      shape.drafts.clear();
      const EngineMemory plain = engine_memory(shape, 2, room, place, without_tokens);
      EXPECT_EQ(plain.drafts, 0);
      shape.drafts = {{.parameters = 1000, .are_layers = are_layers, .blocks = {needs}}};
      const EngineMemory with = engine_memory(shape, 2, room, place, without_tokens);
      const int64_t own = are_layers ? 1000 : 2000;  // bytes: a layer is divided
      EXPECT_EQ(with.drafts, own);
      EXPECT_EQ(with.weights, plain.weights + own);
      EXPECT_EQ(with.staged,
                plain.staged + (place != EnginePlace::kInTurns && are_layers ? own : 0));
      EXPECT_EQ(with.weights + with.staged + with.keys_and_values, room);
      // Four blocks of 32 numbers on a device, and one more of as many or of all 64.
      EXPECT_NEAR(
          with.tokens,
          static_cast<double>(with.keys_and_values) / (2.0 * (4 * 32 + (are_layers ? 32 : 64))),
          1e-6);
    }
  }
}

TEST(PlanDrafts, LayersThatAreTrainedTakeRoomOfTrainersAndTravel) {
  PlanConfig config = dense_plan();
  config.trainers = {1, 1};
  config.colocates = false;
  config.rollout_devices = 1;
  const Plan plain = make_plan(config);
  model::BlockNeeds needs;
  needs.cache = plain.shape.blocks[0].cache;
  needs.costs = plain.shape.blocks[0].costs;
  config.drafts = {{.parameters = 1000, .are_layers = true, .blocks = {needs}}};
  const Plan carried = make_plan(config);
  config.drafts[0].are_trained = true;
  const Plan trained = make_plan(config);
  const auto memory = [](const Plan& plan) { return plan.best().stages.front().memory; };
  EXPECT_EQ(memory(carried).peak(), memory(plain).peak());
  EXPECT_EQ(carried.update.bytes, plain.update.bytes);
  EXPECT_EQ(memory(trained).weights, memory(plain).weights + 2000);
  EXPECT_EQ(memory(trained).gradients, memory(plain).gradients + 4000);
  EXPECT_EQ(memory(trained).optimizer, memory(plain).optimizer + 12000);
  EXPECT_GT(memory(trained).activations, memory(plain).activations);
  EXPECT_EQ(trained.update.bytes, plain.update.bytes + 2000);
  EXPECT_THAT(to_table(trained), HasSubstr("of them to draft with"));
  EXPECT_THAT(to_table(plain), ::testing::Not(HasSubstr("to draft with")));
}

TEST(PlanMemory, IsDividedByTheAxes) {
  const ModelShape shape = shape_of(parsed(glm45_config()));
  Workload workload;
  const comm::ParallelLayout layout =
      *with_layers({.dp = 1, .tp = 8, .pp = 8, .ep = 8, .sequence_parallel = true}, 92);
  EXPECT_EQ(layout.first_layers, 10);
  EXPECT_EQ(layout.last_layers, 10);
  const std::vector<Stage> stages = stages_of(shape, layout, workload);
  ASSERT_EQ(stages.size(), 8);
  double weights = 0;
  for (const Stage& stage : stages) weights += static_cast<double>(stage.memory.weights * 8);
  // Every number once, but for what each of eight ranks holds whole.
  EXPECT_NEAR(weights / 2, static_cast<double>(shape.parameters()), 0.01 * 353e9);
  EXPECT_GT(stages[0].memory.activations,
            stages[7].memory.activations);  // more micro-batches wait there
  EXPECT_EQ(stages[0].memory.logits, 0);
  EXPECT_GT(stages[7].memory.logits, 0);
}

TEST(PlanCollectives, OfDataParallelismAreGradientsAndWeights) {
  PlanConfig config = dense_plan();
  config.wanted = {.tp = 1, .pp = 1, .cp = 1};
  const Plan plan = make_plan(config);
  const auto parameters = static_cast<double>(plan.shape.parameters());
  const Collective& gradients = named(plan.best().collectives, "gradients scattered (float32)");
  EXPECT_EQ(gradients.ranks, 2);
  EXPECT_EQ(gradients.bytes, 4 * parameters / 2);  // the other rank's half
  EXPECT_FALSE(gradients.crosses_hosts);
  EXPECT_EQ(gradients.seconds, gradients.bytes / config.rates.link.per_second);
  EXPECT_EQ(named(plan.best().collectives, "weights gathered").bytes, 2 * parameters / 2);
  EXPECT_EQ(plan.best().collectives.size(), 2);
  EXPECT_EQ(plan.update.bytes, 0);  // engines read what is trained
}

TEST(PlanCollectives, OfTensorParallelismMoveTheStream) {
  PlanConfig config = dense_plan();
  config.wanted = {.tp = 2, .pp = 1, .cp = 1};
  config.rates.network = {1e9, "a test"};
  config.trainers = {.hosts = 2, .per_host = 1};
  const Plan plan = make_plan(config);
  const Collective& stream =
      named(plan.best().collectives, "residual stream, gathered and scattered");
  // Rows: 4 prompts of 100 and 8 responses of 50. Four messages a layer and pass, of half of it.
  EXPECT_EQ(config.workload.rows(), 800);
  EXPECT_EQ(stream.bytes, 4 * 2 * 4 * (800 * 64 * 2.0) / 2);
  EXPECT_TRUE(stream.crosses_hosts);
  EXPECT_EQ(stream.seconds, stream.bytes / 1e9);
  EXPECT_GT(plan.update.bytes, 0);  // the engines have other slices
}

TEST(PlanLayouts, OfGlm45FitOn64DevicesAndOn1024) {
  for (const int64_t hosts : {8, 128}) {
    PlanConfig config{.model = parsed(glm45_config())};
    config.trainers = {.hosts = hosts, .per_host = 8};
    config.workload = {.prompts = 128,
                       .samples = 8,
                       .prompt_tokens = 512,
                       .response_tokens = 8192,
                       .micro_batch_tokens = 16384};
    const Plan plan = make_plan(config);
    EXPECT_TRUE(plan.fits) << hosts << " hosts need " << plan.best().largest_stage() / 1000000000
                           << " GB a device";
    EXPECT_EQ(plan.best().layout.world_size(), hosts * 8);
    EXPECT_GT(plan.best().layout.ep, 1);
    EXPECT_GT(plan.engine.tokens, 100'000);
    const std::string table = to_table(plan);
    EXPECT_THAT(table, HasSubstr("A prediction: nothing was started"));
    EXPECT_THAT(table, HasSubstr("not measured"));
    EXPECT_THAT(table, HasSubstr("rows to experts and back"));
  }
}

TEST(PlanLayouts, WhatDividesNothingIsRefusedWithWhatWould) {
  PlanConfig config = dense_plan();
  config.wanted.tp = 3;
  try {
    make_plan(config);
    FAIL() << "three ranks divide four heads";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("4 heads and 2 key-value heads"));
  }
}

TEST(PlanLayouts, WhatDoesNotFitIsSaid) {
  PlanConfig config{.model = parsed(glm45_config())};
  config.trainers = {.hosts = 1, .per_host = 8};
  const Plan plan = make_plan(config);
  EXPECT_FALSE(plan.fits);
  EXPECT_THAT(to_table(plan), HasSubstr("this does not fit"));
}

json::object qwen3_4b_config() {
  return {{"model_type", "qwen3"},
          {"architectures", json::array{"Qwen3ForCausalLM"}},
          {"attention_bias", false},
          {"hidden_size", 2560},
          {"intermediate_size", 9728},
          {"num_hidden_layers", 36},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"head_dim", 128},
          {"vocab_size", 151936},
          {"max_position_embeddings", 40960},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000.0},
          {"tie_word_embeddings", true},
          {"hidden_act", "silu"},
          {"torch_dtype", "bfloat16"}};
}

TEST(PlanMemory, OfCodesIsAByteANumberOfTheMatrices) {
  PlanConfig config{.model = parsed(qwen3_4b_config())};
  config.trainers = {.hosts = 1, .per_host = 2};
  config.colocates = false;
  config.rollout_devices = 1;
  config.workload = dense_plan().workload;
  const Plan plain = make_plan(config);
  config.has_codes = true;
  const Plan codes = make_plan(config);
  // q and o 4096, k and v 1024 rows or columns; gates, ups and downs.
  const double numbers = 36.0 * 2560 * (2 * 4096 + 2 * 1024 + 3 * 9728),
               embedding = 151936.0 * 2560 * 2;
  EXPECT_NEAR(static_cast<double>(codes.engine.weights),
              embedding + numbers * (1 + 4.0 / (128 * 128)), 1e-3 * numbers);
  EXPECT_NEAR(static_cast<double>(codes.engine.weights) / (1 << 30), 4.11, 0.04);
  EXPECT_EQ(codes.engine.staged, codes.engine.weights);
  EXPECT_NEAR(codes.update.bytes, static_cast<double>(codes.engine.weights), 1);
  EXPECT_NEAR(codes.update.bytes / plain.update.bytes, 0.55, 0.01) << "the embedding is plain";
  // On the trainer's devices they are a copy, twice while an update is brought.
  config.colocates = true;
  const Plan together = make_plan(config);
  EXPECT_EQ(together.engine.staged, together.engine.weights);
  config.has_codes = false;
  EXPECT_EQ(make_plan(config).engine.staged, 0);
}

TEST(PlanMemory, KeysBehindAWindowAreGivenBack) {
  ModelShape shape;
  const model::CacheSpec cache{.heads = 2, .key_size = 16, .value_size = 16};
  shape.blocks = {{.cache = cache}, {.cache = cache, .window = 128}};
  const int64_t bytes = 1'000'000;
  // Of 1,024 tokens the second layer keeps 128 and two blocks of 64: a quarter.
  EXPECT_DOUBLE_EQ(engine_memory(shape, 1, bytes, EnginePlace::kInTurns, 1024).tokens,
                   1e6 / 2 / (64 + 16));
  EXPECT_DOUBLE_EQ(engine_memory(shape, 1, bytes, EnginePlace::kInTurns, 100).tokens,
                   1e6 / 2 / 128);
}

/// What a run says of engines of more than two devices.
std::string why_not_above_two(int64_t per_engine) {
  return per_engine > 2 ? fmt::format("--rollout-num-gpus-per-engine {}: cuts a block", per_engine)
                        : "";
}

TEST(Plan, ProposesEnginesThatARunTakes) {
  PlanConfig config = dense_plan();
  config.trainers = {1, 8};
  config.rates.device_bytes = config.rates.reserved_bytes;  // nothing fits: as many as can be
  EXPECT_EQ(make_plan(config).engines.per_engine, 8);
  config.why_no_engine = why_not_above_two;
  const Plan plan = make_plan(config);
  EXPECT_EQ(plan.engines.per_engine, 2);
  EXPECT_THAT(to_table(plan), HasSubstr("of 1 or 2 devices an engine works; a run refuses others: "
                                        "--rollout-num-gpus-per-engine 4: cuts a block"));
  config.per_engine = 4;
  EXPECT_THAT([&] { make_plan(config); },
              ::testing::ThrowsMessage<ConfigError>(
                  HasSubstr("per-engine 4: cuts a block; of 8 devices, engines of 1 or 2 work")));
  config.per_engine = 2;
  EXPECT_EQ(make_plan(config).engines.per_engine, 2);
}

TEST(Plan, ProposesLayoutsThatARunTakes) {
  PlanConfig config = dense_plan();
  config.why_no_layout = [](const comm::ParallelLayout& layout) {
    return layout.tp > 1 ? "a rank that trains cuts a block" : "";
  };
  for (const Candidate& one : make_plan(config).candidates) EXPECT_EQ(one.layout.tp, 1);
  config.wanted.tp = 2;
  EXPECT_THAT([&] { make_plan(config); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("a rank that trains cuts a block")));
}

TEST(Plan, CountsSequenceParallelismWhereItIsAskedFor) {
  PlanConfig config = dense_plan();
  config.trainers = {1, 2};
  config.wanted = {.tp = 2, .pp = 1, .cp = 1};
  const Plan whole = make_plan(config);
  EXPECT_FALSE(whole.best().layout.sequence_parallel);
  config.wanted.sequence_parallel = true;
  const Plan divided = make_plan(config);
  EXPECT_TRUE(divided.best().layout.sequence_parallel);
  EXPECT_LT(divided.best().stages[0].memory.activations, whole.best().stages[0].memory.activations);
}

}  // namespace
}  // namespace slime::estimate
