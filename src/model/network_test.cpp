#include "model/network.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>

#include "comm/unconnected_group.h"
#include "core/error.h"
#include "model/families/family.h"
#include "model/golden_models_for_tests.h"
#include "model/model_files.h"
#include "model/save.h"

namespace slime::model {
namespace {

using ::testing::HasSubstr;

std::filesystem::path fixture(const std::string& name) { return golden_models::directory(name); }

bool has(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

comm::Mesh unconnected(const comm::ParallelLayout& layout, int rank) {
  return comm::Mesh(layout, rank, [rank](comm::Axis, const std::vector<int>& members) {
    const auto at = std::ranges::find(members, rank) - members.begin();
    return std::make_unique<comm::UnconnectedGroup>(static_cast<int>(at),
                                                    static_cast<int>(members.size()));
  });
}

class ModelDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("slime_model_" + std::to_string(::getpid()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string problem_of() {
    try {
      load_network(directory_, Precision::of("float32"));
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  /// The fixture's config and its tensors, changed by `change`.
  void write(const std::string& name, const std::function<void(NamedTensors&)>& change) {
    std::filesystem::copy_file(fixture(name) / "config.json", directory_ / "config.json",
                               std::filesystem::copy_options::overwrite_existing);
    const SafetensorsFile file(fixture(name) / "model.safetensors");
    NamedTensors tensors;
    for (const auto& [tensor, stored] : file.tensors())
      tensors.emplace_back(tensor, file.read(tensor));
    change(tensors);
    write_safetensors(directory_ / "model.safetensors", tensors);
  }

  std::filesystem::path directory_;
};

TEST_F(ModelDirectory, IsReadBackAsItWasSavedWholeAndInShards) {
  const auto network = load_network(fixture("qwen3"), Precision::of("bfloat16"));
  for (const uint64_t shard_bytes : {uint64_t{1} << 30, uint64_t{60'000}}) {
    save_network(*network, directory_, {.dtype = {}, .shard_bytes = shard_bytes});
    EXPECT_EQ(std::filesystem::exists(directory_ / "model.safetensors"), shard_bytes > 100'000);
    const auto again = load_network(directory_, Precision::of("bfloat16"));
    EXPECT_TRUE(again->weights().flat().equal(network->weights().flat()));
    EXPECT_EQ(again->config().raw.at("torch_dtype"), "bfloat16");
  }
}

/// Every tensor of `before` is in `after`, in its own precision, and no other.
void expect_same_tensors(const std::filesystem::path& before, const std::filesystem::path& after) {
  const ModelFiles expected(before), found(after);
  ASSERT_EQ(expected.tensors().size(), found.tensors().size());
  for (const auto& [name, location] : expected.tensors()) {
    ASSERT_TRUE(found.tensors().contains(name)) << name;
    const Tensor a = location.file->read(name), b = found.tensors().at(name).file->read(name);
    ASSERT_EQ(a.scalar_type(), b.scalar_type()) << name;
    EXPECT_TRUE(a.equal(b)) << name;
  }
}

TEST_F(ModelDirectory, OfEveryGoldenModelIsReadBackAsItWasSaved) {
  for (const char* name : golden_models::all()) {
    SCOPED_TRACE(name);
    const auto precision = Precision::of(read_model_config(fixture(name)).dtype);
    const auto network = load_network(fixture(name), precision);
    save_network(*network, directory_);
    const auto again = load_network(directory_, precision);
    EXPECT_TRUE(again->weights().flat().equal(network->weights().flat()));
    EXPECT_EQ(again->config().raw, network->config().raw);
    expect_same_tensors(fixture(name), directory_);
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
  }
}

TEST_F(ModelDirectory, KeepsWhatTheNetworkDoesNotComputeInFilesAndShards) {
  const auto network = load_network(fixture("mimo"), Precision::of("bfloat16"));
  ASSERT_FALSE(network->weights().carried().empty());
  EXPECT_THAT(network->weights().carried().front().name, HasSubstr("model.mtp_layers.0."));
  for (const uint64_t shard_bytes : {uint64_t{1} << 30, uint64_t{30'000}}) {
    save_network(*network, directory_, {.dtype = {}, .shard_bytes = shard_bytes});
    expect_same_tensors(fixture("mimo"), directory_);
  }
}

TEST_F(ModelDirectory, KeepsALayerThatPredictsAFurtherToken) {
  write("kimi_k2", [](NamedTensors& tensors) {
    tensors.emplace_back("model.layers.3.eh_proj.weight", at::ones({4, 8}, at::kBFloat16));
  });
  EXPECT_THAT(problem_of(), HasSubstr("model.layers.3.eh_proj.weight belongs to no part"));
  json::object config = read_json_file(directory_ / "config.json").as_object();
  config["num_nextn_predict_layers"] = 1;
  write_file(directory_ / "config.json", json_text(config));
  const auto network = load_network(directory_, Precision::of("bfloat16"));
  std::filesystem::create_directory(directory_ / "saved");
  save_network(*network, directory_ / "saved");
  expect_same_tensors(directory_, directory_ / "saved");
}

TEST_F(ModelDirectory, KeepsASelectionBiasAsFloat32WhateverTheWeightsAre) {
  const auto network = load_network(fixture("minimax_m2"), Precision::of("bfloat16"));
  ASSERT_EQ(network->weights().constants().size(), 3U);
  const NamedConstant& constant = network->weights().constants().front();
  EXPECT_EQ(constant.name, "model.layers.0.block_sparse_moe.e_score_correction_bias");
  EXPECT_EQ(constant.value.scalar_type(), at::kFloat);
  EXPECT_FALSE(constant.value.equal(constant.value.to(at::kBFloat16).to(at::kFloat)));
}

TEST_F(ModelDirectory, InLowPrecisionIsReadAsTheNumbersThatItMeans) {
  const SafetensorsFile file(fixture("qwen3_moe") / "model.safetensors");
  std::map<std::string, Tensor> meant;
  NamedTensors stored;
  for (const auto& [name, entry] : file.tensors()) {
    const Tensor plain = file.read(name);
    if (!has(name, ".experts.")) {
      stored.emplace_back(name, plain);
      meant[name] = plain;
      continue;
    }
    const Tensor weight = (plain.to(at::kFloat) * 3).to(at::kFloat8_e4m3fn);
    const Tensor scale = at::full({(plain.size(0) + 15) / 16, (plain.size(1) + 15) / 16}, 1.0 / 3);
    stored.emplace_back(name, weight);
    stored.emplace_back(name + "_scale_inv", scale);
    meant[name] = from_fp8_blocks(weight, scale, 16);
  }
  write_safetensors(directory_ / "model.safetensors", stored);
  json::object config = read_json_file(fixture("qwen3_moe") / "config.json").as_object();
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {16, 16}}};
  write_file(directory_ / "config.json", json_text(config));
  const auto network = load_network(directory_, Precision::of("float32"));
  for (const NamedWeight& weight : network->weights().tensors()) {
    EXPECT_TRUE(Weights::view(network->weights().flat(), weight)
                    .equal(meant.at(weight.name).to(at::kFloat)))
        << weight.name;
  }
  save_network(*network, directory_, {.dtype = "bfloat16"});
  EXPECT_FALSE(
      read_json_file(directory_ / "config.json").as_object().contains("quantization_config"));
  EXPECT_EQ(problem_of(), "none");
}

TEST_F(ModelDirectory, InMxfp4HasTurnedMatricesOfAllExpertsInOneTensor) {
  json::object config = read_json_file(fixture("gpt_oss") / "config.json").as_object();
  config["intermediate_size"] = 64;  // groups are of 32
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  write_file(directory_ / "config.json", json_text(config));
  const auto fresh = make_network(read_model_config(directory_), Precision::of("bfloat16"), 1);
  NamedTensors stored;
  for (const NamedWeight& weight : fresh->weights().tensors()) {
    const auto& shape = weight.shape;
    if (!weight.name.ends_with("experts.gate_up_proj") &&
        !weight.name.ends_with("experts.down_proj")) {
      stored.emplace_back(weight.name, Weights::view(fresh->weights().flat(), weight));
      continue;
    }
    const Tensor blocks = at::zeros({shape[0], shape[2], shape[1] / 32, 16}, at::kByte),
                 scales = at::full({shape[0], shape[2], shape[1] / 32}, 127, at::kByte);
    blocks[1][5][1][3].fill_(0x72);  // 1, then 6
    scales[1][5][1].fill_(129);      // times 4
    stored.emplace_back(weight.name + "_blocks", blocks);
    stored.emplace_back(weight.name + "_scales", scales);
  }
  write_safetensors(directory_ / "model.safetensors", stored);
  const auto network = load_network(directory_, Precision::of("bfloat16"));
  for (const NamedWeight& weight : network->weights().tensors()) {
    if (!weight.name.ends_with("_proj") || !has(weight.name, ".experts.")) continue;
    const Tensor read = Weights::view(network->weights().flat(), weight);
    EXPECT_EQ(read.count_nonzero().item<int64_t>(), 2) << weight.name;
    EXPECT_EQ(read[1][32 + 6][5].item<float>(), 4) << weight.name;
    EXPECT_EQ(read[1][32 + 7][5].item<float>(), 24) << weight.name;
  }
  // A rank unpacks its experts, and takes its slices of each.
  const comm::Mesh mesh = unconnected({.dp = 2, .tp = 2, .ep = 2, .etp = 2}, 3);
  const auto part = load_network(directory_, Precision::of("bfloat16"), mesh);
  std::map<std::string, const NamedWeight*> whole;
  for (const NamedWeight& weight : network->weights().tensors()) whole[weight.name] = &weight;
  int64_t numbers = 0;
  for (const NamedWeight& weight : part->weights().tensors()) {
    const Tensor own = Weights::view(part->weights().flat(), weight);
    EXPECT_TRUE(own.equal(
        weight.slices.of(Weights::view(network->weights().flat(), *whole.at(weight.name)))))
        << weight.name;
    if (has(weight.name, ".experts.")) numbers += weight.slices.is_whole() ? 0 : 1;
  }
  EXPECT_GT(numbers, 0);
}

TEST_F(ModelDirectory, InInt4GroupsIsReadAsTheNumbersThatItMeans) {
  write("qwen3_moe", [](NamedTensors& tensors) {
    NamedTensors stored;
    for (const auto& [name, plain] : tensors) {
      if (!has(name, ".experts.")) {
        stored.emplace_back(name, plain);
        continue;
      }
      const std::string stem = name.substr(0, name.size() - std::string("weight").size());
      const int64_t rows = plain.size(0), columns = plain.size(1);
      const Tensor packed =
          at::full({rows, columns / 8}, static_cast<int32_t>(0x88888888), at::kInt);
      packed[2][1].fill_(static_cast<int32_t>(0x8888888F));  // 7, then zeros
      stored.emplace_back(stem + "weight_packed", packed);
      stored.emplace_back(stem + "weight_scale", at::full({rows, columns / 8}, 0.5, at::kBFloat16));
      stored.emplace_back(stem + "weight_shape", at::tensor({rows, columns}, at::kLong));
    }
    tensors = std::move(stored);
  });
  json::object config = read_json_file(directory_ / "config.json").as_object();
  const json::object weights{{"num_bits", 4}, {"group_size", 8}, {"symmetric", true}};
  config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                   {"format", "pack-quantized"},
                                   {"config_groups", {{"group_0", {{"weights", weights}}}}}};
  write_file(directory_ / "config.json", json_text(config));
  const auto network = load_network(directory_, Precision::of("bfloat16"));
  for (const NamedWeight& weight : network->weights().tensors()) {
    if (!has(weight.name, ".experts.")) continue;
    const Tensor read = Weights::view(network->weights().flat(), weight);
    EXPECT_EQ(read.count_nonzero().item<int64_t>(), 1) << weight.name;
    EXPECT_EQ(read[2][8].item<float>(), 3.5F) << weight.name;
  }
}

TEST_F(ModelDirectory, OfAFreshNetworkIsAFunctionOfTheSeed) {
  const ModelConfig config = read_model_config(fixture("qwen2"));
  const auto a = make_network(config, Precision::of("float32"), 5),
             b = make_network(config, Precision::of("float32"), 5);
  EXPECT_TRUE(a->weights().flat().equal(b->weights().flat()));
  EXPECT_FALSE(a->weights().flat().equal(
      make_network(config, Precision::of("float32"), 6)->weights().flat()));
  const Tensor embedding = a->head().matrix.values;
  EXPECT_NEAR(embedding.std().item<double>(), config.initializer_range, 0.001);
  EXPECT_NEAR(embedding.mean().item<double>(), 0, 0.001);
}

TEST_F(ModelDirectory, OfAConfigurationMadeInCodeReadsBack) {
  ModelConfig config = read_model_config(fixture("mistral"));
  config.raw = {};
  save_network(*make_network(config, Precision::of("float32"), 1), directory_);
  const ModelConfig again = read_model_config(directory_);
  EXPECT_EQ(again.window, config.window);
  EXPECT_EQ(again.head_dim, config.head_dim);
  EXPECT_EQ(again.dtype, "float32");
  EXPECT_EQ(again.eos_token_ids, config.eos_token_ids);
}

TEST_F(ModelDirectory, ReportsMissingMisshapenAndSurplusTensorsTogether) {
  write("qwen2", [](NamedTensors& tensors) {
    std::erase_if(tensors,
                  [](const auto& t) { return t.first == "model.layers.1.self_attn.k_proj.bias"; });
    for (auto& [name, tensor] : tensors) {
      if (name == "model.norm.weight") tensor = at::zeros({97});
      if (name == "model.layers.0.mlp.up_proj.weight")
        tensor = at::zeros(tensor.sizes(), at::kLong);
    }
    tensors.emplace_back("model.layers.3.mlp.up_proj.weight", at::zeros({2}));
  });
  EXPECT_THAT(problem_of(),
              ::testing::AllOf(HasSubstr("model.layers.1.self_attn.k_proj.bias is missing"),
                               HasSubstr("model.norm.weight is [97], config.json means [96]"),
                               HasSubstr("up_proj.weight holds I64"),
                               HasSubstr("model.layers.3.mlp.up_proj.weight belongs to no part")));
}

TEST_F(ModelDirectory, OfNumbersThatAreNotFiniteIsRefusedByFileAndTensor) {
  write("qwen2", [](NamedTensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name == "model.norm.weight") tensor = at::full_like(tensor, NAN);
  });
  EXPECT_THAT(problem_of(),
              HasSubstr((directory_ / "model.safetensors").string() +
                        ": tensor model.norm.weight has numbers that are not finite"));
}

TEST_F(ModelDirectory, MayHoldTheTiedHeadAgain) {
  write("qwen2", [](NamedTensors& tensors) {
    tensors.emplace_back("lm_head.weight", at::zeros({384, 96}));
  });
  EXPECT_EQ(problem_of(), "none");
}

TEST_F(ModelDirectory, ReportsATruncatedFileMissingWeightsAndABadIndex) {
  write("qwen2", [](NamedTensors&) {});
  std::filesystem::resize_file(directory_ / "model.safetensors", 5000);
  EXPECT_THAT(problem_of(), HasSubstr("truncated"));
  std::filesystem::remove(directory_ / "model.safetensors");
  EXPECT_THAT(problem_of(), HasSubstr("holds neither model.safetensors nor"));
  const auto index = directory_ / "model.safetensors.index.json";
  std::ofstream(index) << R"({"weight_map": {"a": "../../etc/passwd"}})";
  EXPECT_THAT(problem_of(), HasSubstr("name of a file beside it"));
  std::ofstream(index, std::ios::trunc) << R"({"weight_map": {"a": "gone.safetensors"}})";
  EXPECT_THAT(problem_of(), HasSubstr("gone.safetensors: cannot be opened"));
  std::ofstream(index, std::ios::trunc) << R"({"weights": {}})";
  EXPECT_THAT(problem_of(), HasSubstr("no weight_map"));
  std::filesystem::remove(directory_ / "config.json");
  EXPECT_THAT(problem_of(), HasSubstr("config.json"));
}

TEST_F(ModelDirectory, IsReadInTensorParallelSlicesThatMakeUpTheWhole) {
  const auto whole = load_network(fixture("qwen3"), Precision::of("float32"));
  for (int rank = 0; rank < 2; ++rank) {
    const comm::Mesh mesh = unconnected({.tp = 2}, rank);
    const auto shard = load_network(fixture("qwen3"), Precision::of("float32"), mesh);
    for (size_t i = 0; i < shard->weights().tensors().size(); ++i) {
      const NamedWeight& weight = shard->weights().tensors()[i];
      const Tensor expected =
          weight.slices.of(Weights::view(whole->weights().flat(), whole->weights().tensors()[i]));
      EXPECT_TRUE(Weights::view(shard->weights().flat(), weight).equal(expected)) << weight.name;
    }
  }
}

TEST_F(ModelDirectory, WithLatentAttentionOrGatedDeltaNetsIsForRanksThatDivideTheirHeads) {
  const auto problem_on = [&](const char* name, const comm::ParallelLayout& layout) -> std::string {
    ModelConfig config = read_model_config(fixture(name));
    config.experts = {};
    try {
      make_blank_network(config, Precision::of("float32"), unconnected(layout, 0));
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  for (const char* name : {"qwen3_5", "kimi_k2"}) {
    EXPECT_EQ(problem_on(name, {.tp = 2}), "none");
    EXPECT_EQ(problem_on(name, {.cp = 2}), "none");
  }
  EXPECT_EQ(problem_on("qwen3_5", {.pp = 2}), "none");
  EXPECT_THAT(problem_on("qwen3_5", {.tp = 4}),
              HasSubstr("tensor parallelism of 4 does not divide a dimension of 2"));
  EXPECT_EQ(problem_on("deepseek_v32", {.cp = 2}), "none");
  EXPECT_EQ(problem_on("deepseek_v32", {.pp = 3}), "none");
}

TEST_F(ModelDirectory, WhoseLayersTakeAChoiceOfTokensIsCutWhereOneIsMade) {
  ModelConfig config = read_model_config(fixture("glm_moe_dsa"));
  config.experts = {};
  config.indexer.in_layer = {true, false, true};
  const auto stage = [&](int rank) {
    make_blank_network(config, Precision::of("float32"), unconnected({.pp = 3}, rank));
  };
  EXPECT_NO_THROW(stage(0));
  EXPECT_NO_THROW(stage(2));
  try {
    stage(1);
    FAIL() << "layer 1 would look for a choice of another stage";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer 1 takes the tokens that the indexer of a layer "));
  }
}

TEST_F(ModelDirectory, IsNotWrittenFromSlicesUnderTheNamesOfWholeTensors) {
  const comm::Mesh mesh = unconnected({.tp = 2}, 1);
  const auto shard = load_network(fixture("qwen3"), Precision::of("float32"), mesh);
  try {
    save_network(*shard, directory_);
    FAIL() << "slices were saved";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("embed_tokens.weight is a slice [192, 64] of [384, 64]"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST(Weights, KeepPaddingZeroAndCountParametersWithoutIt) {
  const auto network = load_network(fixture("llama"), Precision::of("float32"));
  Weights& weights = network->weights();
  int64_t covered = 0;
  for (const NamedWeight& weight : weights.tensors()) {
    covered += Weights::view(weights.flat(), weight).numel();
    EXPECT_EQ(weight.decays, weight.shape.size() == 2);
  }
  EXPECT_EQ(covered, weights.num_parameters());
  EXPECT_GE(weights.num_elements(), covered);
  weights.enable_grad();
  const Tensor before = weights.grad();
  weights.enable_grad();
  EXPECT_TRUE(before.is_same(weights.grad()));
  EXPECT_EQ(network->head().grad.data_ptr(),
            Weights::view(weights.grad(), weights.tensors()[0]).data_ptr());
}

TEST(Precision, RefusesUnknownWords) { EXPECT_THROW(Precision::of("int4"), ConfigError); }

TEST(TensorParallelSlice, RefusesASizeThatDoesNotDivide) {
  const comm::Mesh mesh = unconnected({.dp = 2, .tp = 4}, 7);
  EXPECT_EQ(tensor_parallel_slice(mesh, 1, 8), (Slice{1, 6, 8}));
  EXPECT_THROW(tensor_parallel_slice(mesh, 0, 9), ConfigError);
}

}  // namespace
}  // namespace slime::model
