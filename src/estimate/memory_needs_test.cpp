#include "estimate/memory_needs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/expert_pages.h"
#include "model/adapter_config.h"
#include "model/adapters.h"
#include "model/network.h"

namespace slime::estimate {
namespace {

/// Requests of 250 tokens, computed 16 at a time.
config::RunConfig run() {
  config::RunConfig config;
  config.rollout_max_prompt_len = 50;
  config.rollout_max_response_len = 200;
  config.sglang_chunked_prefill_size = 16;
  return config;
}

std::unique_ptr<model::Network> network_of(const std::string& fixture) {
  const auto directory =
      std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models" / fixture;
  return model::make_blank_network(model::read_model_config(directory),
                                   model::Precision::of("float32"));
}

MemoryNeeds needs_of(const config::RunConfig& config, model::Network& network) {
  return engine_memory_needs(config, network, model::Precision::of("float32"), 0);
}

TEST(MemoryNeeds, PagesOfLayersWithWindowsAreCountedForWhatTheyHold) {
  // One layer of four sees all: a table for it, and one for each of the others. Keys and values of
  // 16 tokens, 2 heads of 32.
  const auto gemma = network_of("gemma3_text");
  const MemoryNeeds needs = needs_of(run(), *gemma);
  EXPECT_EQ(needs.longest_request, 250);
  EXPECT_EQ(needs.kv_page_bytes, 4 * 16 * 2 * 2 * 32 * 4);
  // 250 tokens in one table; in three a window of 16, two blocks of 64 and a chunk.
  EXPECT_EQ(needs.most_held, (250 + 3 * 160 + 3) / 4);

  const auto mistral = network_of("mistral");
  EXPECT_EQ(needs_of(run(), *mistral).most_held, 160) << "each layer has a window";
  const auto qwen = network_of("qwen3");
  EXPECT_EQ(needs_of(run(), *qwen).most_held, 250);
}

TEST(MemoryNeeds, ThereAreNoTablesOfWindowsWhereNoRequestIsLonger) {
  const auto gemma = network_of("gemma3_text");
  config::RunConfig config = run();
  config.sglang_context_length = 120;
  const MemoryNeeds needs = needs_of(config, *gemma);
  EXPECT_EQ(needs.kv_page_bytes, 4 * 16 * 2 * 2 * 32 * 4);
  EXPECT_EQ(needs.most_held, 120);
}

TEST(MemoryNeeds, ChoicesOfExpertsLieBesideThePagesOfAllTables) {
  const auto network = network_of("gpt_oss");
  config::RunConfig config = run();
  EXPECT_EQ(needs_of(config, *network).expert_page_bytes, 0);
  config.use_rollout_routing_replay = true;
  EXPECT_EQ(needs_of(config, *network).expert_page_bytes, 2 * engine::expert_page_bytes(*network));
}

TEST(MemoryNeeds, RowsOfDraftsHaveLogitsToo) {
  const auto network = network_of("qwen3");
  config::RunConfig config = run();
  config.sglang_max_running_requests = 200;
  const auto workspace = [&] { return needs_of(config, *network).engine_workspace; };
  const int64_t plain = workspace();
  config.rollout_drafts = "suffix";
  config.rollout_draft_tokens = 3;
  const int64_t each = (workspace() - plain) / (3 * 200);
  EXPECT_GT(each, network->config().vocab_size * 4);
  config.rollout_draft_tokens = 15;
  EXPECT_EQ(workspace() - plain, (1024 - 200) * each) << "where they pay";
  config.rollout_draft_always = true;
  EXPECT_EQ(workspace() - plain, 15 * 200 * each);
}

TEST(MemoryNeeds, RowsOfTokensThatAreVerifiedHaveLogitsToo) {
  const auto network = network_of("qwen3");
  config::RunConfig config = run();
  config.sglang_max_running_requests = 200;
  config.sglang_chunked_prefill_size = 2048;
  const auto workspace = [&] { return needs_of(config, *network).engine_workspace; };
  const int64_t plain = workspace();
  config.rollout_verify_tokens = 8;
  EXPECT_EQ(workspace(), plain) << "without --true-on-policy it has no effect";
  config.true_on_policy = true;
  const int64_t each = (workspace() - plain) / (8 * 200);
  EXPECT_GT(each, network->config().vocab_size * 4);
  config.rollout_verify_tokens = 16;
  EXPECT_EQ(workspace() - plain, 2048 * each) << "as many as a step computes";
}

/// 48 requests with three drafts each: up to 192 rows, once launched and once recorded, in recordings of their own.
TEST(MemoryNeeds, RowsOfDraftsHaveLogitsAndRecordingsOnAGpuToo) {
  const auto network = network_of("qwen3");
  config::RunConfig config = run();
  config.sglang_max_running_requests = 48;
  model::Precision precision = model::Precision::of("float32");
  precision.device = at::kCUDA;
  const auto workspace = [&] {
    return engine_memory_needs(config, *network, precision, 0).engine_workspace;
  };
  const int64_t plain = workspace();
  config.rollout_drafts = "suffix";
  config.rollout_draft_tokens = 3;
  // Recorded steps of 1 to 192 rows have 13 sizes, for each of two networks.
  constexpr int64_t kRecordings = 2 * 13 * (int64_t{8} << 20);
  const int64_t more = workspace() - plain - kRecordings;
  EXPECT_GT(more, 2 * 3 * 48 * network->config().vocab_size * 4);
  EXPECT_EQ(more % (2 * 3 * 48), 0);
}

/// A step that verifies is not recorded, and its logits come in blocks of 256 rows.
TEST(MemoryNeeds, AStepThatVerifiesOnAGpuHasABlockOfLogits) {
  const auto network = network_of("qwen3");
  config::RunConfig config = run();
  config.sglang_max_running_requests = 8;
  config.sglang_chunked_prefill_size = 2048;
  model::Precision precision = model::Precision::of("bfloat16");
  precision.device = at::kCUDA;
  const auto workspace = [&] {
    return engine_memory_needs(config, *network, precision, 0).engine_workspace;
  };
  const int64_t plain = workspace(), each = network->config().vocab_size * 4;
  config.true_on_policy = true;
  config.rollout_verify_tokens = 16;
  EXPECT_EQ(workspace() - plain, 16 * 8 * each);
  config.rollout_verify_tokens = 64;
  EXPECT_EQ(workspace() - plain, (256 - 8) * each);
}

/// A network of bfloat16, and one like it whose matrices are codes.
struct CodedNetworks {
  CodedNetworks() {
    const auto directory = std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models/qwen3";
    const model::ModelConfig model = model::read_model_config(directory);
    stored_precision.matrices = kernels::MatrixFormat::kFp8Blocks;
    plain = model::make_blank_network(model, plain_precision);
    stored = model::make_blank_network(model, stored_precision);
  }
  const model::Precision plain_precision{.weights = at::kBFloat16, .activations = at::kFloat};
  model::Precision stored_precision = plain_precision;
  std::unique_ptr<model::Network> plain, stored;
};

TEST(MemoryNeeds, MatricesInEightBitsAreCountedAsTheyAreStored) {
  const CodedNetworks of;
  // Three layers of (256 + 320) x 64 + 64 x (128 + 160) numbers; factors of four matrices, 128 floats each.
  constexpr int64_t kNumbers = 3 * 64 * (256 + 320 + 128 + 160), kFactors = 3 * 4 * 128 * 4;
  EXPECT_EQ(needs_of(run(), *of.plain).engine_weights - needs_of(run(), *of.stored).engine_weights,
            kNumbers - kFactors);
  // The trained network is plain, and its engine asks for codes, which are made beside what runs.
  config::RunConfig config = run();
  config.rollout_precision = "fp8";
  const train::TrainConfig trainer;
  const MemoryNeeds both =
      memory_needs(config, *of.plain, *of.plain, of.plain_precision, &trainer, {}, true, 0);
  EXPECT_EQ(both.engine_weights, needs_of(run(), *of.stored).engine_weights);
  EXPECT_EQ(both.staged_weights, both.engine_weights);
  EXPECT_EQ(memory_needs(run(), *of.plain, *of.plain, of.plain_precision, &trainer, {}, true, 0)
                .engine_weights,
            0);
}

TEST(MemoryNeeds, EnginesBesideATrainerOfAdaptersHaveNoSecondBuffer) {
  const CodedNetworks of;
  config::RunConfig config = run();
  config.train_async = true;
  ASSERT_FALSE(config.takes_turns());
  const auto needs_beside = [&](const char* precision) {
    config.rollout_precision = precision;
    const train::TrainConfig trainer;
    return memory_needs(config, *of.plain, *of.plain, of.plain_precision, &trainer, {}, true, 0);
  };
  const MemoryNeeds plain = needs_beside("auto"), codes = needs_beside("fp8");
  EXPECT_EQ(plain.engine_weights, of.plain->weights().num_bytes());
  EXPECT_EQ(codes.staged_weights, codes.engine_weights);
  model::add_adapters(*of.plain, model::form_of({.rank = 4, .alpha = 8, .targets = {"all-linear"}},
                                                of.plain->config()));
  const int64_t adapter = of.plain->trained().num_bytes();
  EXPECT_EQ(needs_beside("auto").engine_weights, plain.engine_weights + adapter);
  EXPECT_EQ(needs_beside("fp8").engine_weights, codes.engine_weights + adapter);
  EXPECT_EQ(needs_beside("auto").staged_weights, 0);
  EXPECT_EQ(needs_beside("fp8").staged_weights, 0) << "the base's codes are made once";
  // An engine elsewhere has a second adapter beside the same base.
  const MemoryNeeds apart = needs_of(run(), *of.plain);
  EXPECT_EQ(apart.engine_weights, plain.engine_weights + adapter);
  EXPECT_EQ(apart.staged_weights, adapter);
}

TEST(MemoryNeeds, CodesForEnginesElsewhereAreWhatIsPublished) {
  const CodedNetworks of;
  config::RunConfig config = run();
  config.rollout_precision = "fp8";
  config.num_engine_workers = 2;
  const train::TrainConfig trainer;
  const MemoryNeeds needs =
      memory_needs(config, *of.plain, *of.plain, of.plain_precision, &trainer, {}, true, 0);
  EXPECT_EQ(needs.published_weights, of.stored->weights().num_bytes());
  EXPECT_EQ(needs.engine_weights, 0) << "those are in another process";
  const MemoryNeeds apart = engine_memory_needs(config, *of.stored, of.stored_precision, 0);
  EXPECT_EQ(apart.engine_weights, of.stored->weights().num_bytes());
  EXPECT_EQ(apart.staged_weights, apart.engine_weights);
}

TEST(MemoryNeeds, CodesThatRanksBringLieInNoSecondBuffer) {
  const CodedNetworks of;
  config::RunConfig config = run();
  config.rollout_precision = "fp8";
  config.actor_num_gpus_per_node = 2;
  config.colocate = true;
  config.rollout_num_gpus = 2;
  ASSERT_TRUE(config.has_engine_on_each_rank());
  const train::TrainConfig trainer;
  const MemoryNeeds needs =
      memory_needs(config, *of.stored, *of.plain, of.plain_precision, &trainer, {}, true, 0);
  EXPECT_EQ(needs.whole_weights, of.stored->weights().num_bytes());
  EXPECT_EQ(needs.engine_weights, 0);
  EXPECT_EQ(needs.staged_weights, of.stored->weights().num_bytes()) << "codes of the rank's slices";
}

TEST(MemoryNeeds, WhatPromptsMakeForExpertsInCodesIsCountedOnAGpu) {
  const auto network = network_of("qwen3_moe"), dense = network_of("qwen3");
  const auto more = [](const std::string& dtype, model::Network& of) {
    model::Precision precision = model::Precision::of(dtype);
    precision.activations = precision.weights;
    precision.device = at::kCUDA;
    config::RunConfig config = run();
    const auto workspace = [&] {
      return engine_memory_needs(config, of, precision, 0).engine_workspace;
    };
    const int64_t plain = workspace();
    config.rollout_precision = "fp8";
    return workspace() - plain;
  };
  EXPECT_EQ(more("bfloat16", *network), 16 * 3 * 64) << "codes of three visits of 16 tokens";
  EXPECT_EQ(more("float32", *network), 8 * 2 * 32 * 64 * 4) << "gates and ups of eight experts";
  EXPECT_EQ(more("bfloat16", *dense), 0);
}

}  // namespace
}  // namespace slime::estimate
