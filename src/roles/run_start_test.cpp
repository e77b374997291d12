#include "roles/run_start.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "model/eagle3_for_tests.h"

namespace slime::roles {
namespace {

using ::testing::HasSubstr;

model::ModelConfig model_of(const std::string& fixture) {
  return model::read_model_config(std::filesystem::path(SLIME_SOURCE_DIR) /
                                  "tests/fixtures/models" / fixture);
}

std::string problem_of(const config::RunConfig& config, const model::ModelConfig& model) {
  try {
    check_shape(config, model);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(EpochNotes, SayHowOftenTheLastStepTakesRowsBeyondTheEpochs) {
  config::RunConfig config;
  config.num_rollout = std::nullopt;
  config.num_epoch = 1;
  config.rollout_batch_size = 4;
  EXPECT_TRUE(epoch_notes(config, 12).empty());
  ASSERT_EQ(epoch_notes(config, 10).size(), 1U);
  EXPECT_THAT(epoch_notes(config, 10).front(),
              HasSubstr("3 rollout steps of 4; batches go on over the ends of epochs, and the last "
                        "one is filled with 2 rows of one more epoch"));
  config.rollout_batch_size = 40;
  EXPECT_THAT(epoch_notes(config, 10).front(), HasSubstr("filled with 30 rows of 3 more epochs"));
  config.num_rollout = 7;
  EXPECT_TRUE(epoch_notes(config, 10).empty());
}

TEST(MissingFields, OfAnEvaluationAreToldWhereItNamesFieldsOfItsOwn) {
  const auto path = std::filesystem::path(testing::TempDir()) / "fields_of_evaluation.jsonl";
  std::ofstream(path) << "{\"input\": \"1+1\", \"functions\": [{\"name\": \"f\"}]}\n";
  const auto notes_of = [&](const std::string& tool_key) {
    config::EvalSetConfig set;
    set.name = "sums";
    set.tool_key = tool_key;
    set.metadata_key = "metadata";
    const auto rows = buffer::Dataset::load({.paths = {path.string()}, .keys = {.tools = tool_key}},
                                            nullptr, nullptr);
    return missing_fields(rows, config::RunConfig(), set);
  };
  EXPECT_TRUE(notes_of("tools").empty()) << "the name that is not given";
  EXPECT_TRUE(notes_of("functions").empty());
  ASSERT_EQ(notes_of("function").size(), 1U);
  EXPECT_EQ(notes_of("function").front(),
            "evaluation sums: --eval-tool-key function: no row has such a field (of the first: the "
            "row has input, functions)");
}

TEST(CheckShape, NamesWhatAGpuCannotAddInTheTrainersOrder) {
  config::RunConfig config;
  config.true_on_policy = true;
  config.device = "cuda";
  const auto says = [&](const std::string& fixture, const auto& change) {
    model::ModelConfig model = model_of(fixture);
    change(model);
    return problem_of(config, model);
  };
  EXPECT_EQ(says("qwen3", [](model::ModelConfig& model) { model.head_dim = 128; }), "");
  EXPECT_THAT(says("qwen3", [](model::ModelConfig& model) { model.head_dim = 96; }),
              HasSubstr("--true-on-policy --device cuda: the model has heads of 96 numbers"));
  EXPECT_THAT(says("qwen3",
                   [](model::ModelConfig& model) {
                     model.head_dim = 64;
                     model.window.front() = 100;
                   }),
              HasSubstr("--true-on-policy --device cuda: the model has sliding windows"));
  const auto with_experts = [&](const std::string& fixture, const auto& change) {
    return says(fixture, [&](model::ModelConfig& model) {
      model.head_dim = 64;
      change(model.experts);
    });
  };
  EXPECT_EQ(with_experts("qwen3_moe", [](model::ExpertsConfig&) {}), "");
  EXPECT_EQ(with_experts("minimax_m2", [](model::ExpertsConfig&) {}), "") << "sigmoids";
  EXPECT_THAT(with_experts("qwen3_moe", [](model::ExpertsConfig& it) { it.num_groups = 2; }),
              HasSubstr("--true-on-policy --device cuda: the model has experts with biases or in "
                        "groups"));
  EXPECT_THAT(with_experts("gpt_oss", [](model::ExpertsConfig&) {}),
              testing::AllOf(HasSubstr("the model has sliding windows"),
                             HasSubstr("the model has experts with biases or in groups")));
  EXPECT_THAT(with_experts("qwen3_moe", [](model::ExpertsConfig& it) { it.count = 1024; }),
              HasSubstr("the model has more than 512 experts of a layer"));
  EXPECT_THAT(with_experts("qwen3_moe", [](model::ExpertsConfig& it) { it.width = 12; }),
              HasSubstr("no multiple of eight"));
}

TEST(CheckShape, NamesTheStageThatWouldTakeAnothersChoiceOfTokens) {
  model::ModelConfig model = model_of("glm_moe_dsa");
  model.indexer.in_layer = {true, false, true};
  config::RunConfig config;
  EXPECT_EQ(problem_of(config, model), "");
  config.pipeline_model_parallel_size = 3;
  EXPECT_THAT(problem_of(config, model),
              HasSubstr("--pipeline-model-parallel-size 3: layer 1 would begin a stage"));
  config.pipeline_model_parallel_size = 2;
  EXPECT_THAT(problem_of(config, model), HasSubstr("3 layers cannot be cut into 2 ranges"));
  config.decoder_first_pipeline_num_layers = 2;
  EXPECT_EQ(problem_of(config, model), "");
}

TEST(CheckShape, OutputsOfExpertsWithBiasesAreDivided) {
  model::ModelConfig model = model_of("gpt_oss");
  model.num_heads = model.num_kv_heads = 8;
  config::RunConfig config;
  config.tensor_model_parallel_size = 2;
  EXPECT_EQ(problem_of(config, model), "");
  model.hidden_size = 63;
  EXPECT_THAT(problem_of(config, model), HasSubstr("does not divide the 63 outputs of an expert"));
}

TEST(CheckShape, NumbersOfScriptsAreThoseOfTheModel) {
  const model::ModelConfig deepseek = model_of("deepseek_v3"), dense = model_of("qwen3");
  config::RunConfig config;
  config.num_layers = deepseek.num_layers;
  config.num_experts = deepseek.experts.count;
  config.moe_ffn_hidden_size = deepseek.experts.width;
  config.moe_router_topk = deepseek.experts.per_token;
  config.moe_router_num_groups = deepseek.experts.num_groups;
  config.kv_lora_rank = deepseek.latent.kv_rank;
  config.v_head_dim = deepseek.latent.value_dim;
  config.rotary_percent = 0.5;  // of latent attention scripts have no such number
  EXPECT_EQ(problem_of(config, deepseek), "");
  config.moe_router_topk = deepseek.experts.per_token + 1;
  config.kv_lora_rank = 7;
  EXPECT_THAT(problem_of(config, deepseek),
              testing::AllOf(HasSubstr(fmt::format("--moe-router-topk {}: config.json of "
                                                   "--hf-checkpoint says {}",
                                                   deepseek.experts.per_token + 1,
                                                   deepseek.experts.per_token)),
                             HasSubstr("--kv-lora-rank 7: config.json of --hf-checkpoint says ")));
  config = {};
  config.num_experts = 8;
  config.rotary_percent = 0.5;
  EXPECT_THAT(problem_of(config, dense),
              testing::AllOf(HasSubstr("--num-experts 8: config.json of --hf-checkpoint says "
                                       "nothing of the kind"),
                             HasSubstr("--rotary-percent 0.5: config.json of --hf-checkpoint "
                                       "says 1")));
}

TEST(DraftModels, ThatDoNotFitAreToldWithTheOtherProblemsOfTheModel) {
  const model::ModelConfig model = model_of("qwen3");
  config::RunConfig config;
  config.rollout_drafts = "eagle3";
  const TemporaryFolder folder("slime-draft-model");
  config.rollout_draft_model = folder.path().string();
  EXPECT_THAT(
      problem_of(config, model),
      HasSubstr("--rollout-draft-model: " + folder.path().string() + ": has no config.json"));
  model::Eagle3Files files = model::random_eagle3(model);
  files.write(folder.path());
  EXPECT_EQ(problem_of(config, model), "");
  EXPECT_TRUE(draft_settings(config, model).model);
  config.rollout_drafts = "suffix+eagle3";
  EXPECT_TRUE(draft_settings(config, model).model && draft_settings(config, model).texts);
  files.config["vocab_size"] = 7;
  files.tensors.erase("fc.weight");
  files.write(folder.path());
  config.moe_router_topk = 3;
  EXPECT_THAT(problem_of(config, model),
              testing::AllOf(HasSubstr("vocab_size is 7"), HasSubstr("tensor fc.weight is missing"),
                             HasSubstr("--moe-router-topk 3")));
  // Elsewhere it may be there.
  config.moe_router_topk = std::nullopt;
  config.rollout_draft_model = "/nowhere";
  EXPECT_THAT(problem_of(config, model),
              HasSubstr("--rollout-draft-model: /nowhere: is no directory"));
  config.dry_run = true;
  EXPECT_EQ(problem_of(config, model), "");
}

}  // namespace
}  // namespace slime::roles
