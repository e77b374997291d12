/// Draft layers: the reference's numbers (tests/fixtures/drafts), files, what they ask of a machine.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "comm/unconnected_group.h"
#include "core/error.h"
#include "model/chaining_for_tests.h"
#include "model/config_json.h"
#include "model/golden_models_for_tests.h"
#include "model/model_files.h"
#include "model/network.h"
#include "model/save.h"
#include "model/token_batch_for_tests.h"

namespace slime::model {
namespace {

using ::testing::HasSubstr;

/// Of float32 over three layers; the reference's own second computation differs by 3e-6.
constexpr double kDraftTolerance = 1e-4;

std::filesystem::path draft_fixture(const std::string& name) {
  return std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/drafts" / name;
}

std::unique_ptr<Network> with_drafts(const std::filesystem::path& directory,
                                     const std::string& dtype = "float32") {
  return load_network(directory, Precision::of(dtype), comm::Mesh::single(),
                      DraftLayers::kComputed);
}

/// Rows, or one.
Tensor numbers_of(const json::value& value) {
  if (!value.at(0).is_array())
    return at::tensor(json::value_to<std::vector<double>>(value), at::kDouble);
  std::vector<Tensor> rows;
  for (const json::value& row : value.as_array()) rows.push_back(numbers_of(row));
  return at::stack(rows);
}

double largest_difference(const Tensor& a, const json::value& golden) {
  const Tensor b = numbers_of(golden);
  check(a.sizes() == b.sizes(), "what is compared has one shape");
  return (a.to(at::kDouble) - b).abs().max().item<double>();
}

Tensor draft_of(Network& network, const Tensor& hidden_TH, const TokenBatch& batch) {
  TreeAttention attention(batch);
  return network.draft(0, hidden_TH, batch, attention);
}

class GoldenDrafts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    network_ = with_drafts(draft_fixture(GetParam()));
    golden_ = read_json_file(draft_fixture(GetParam()) / "golden.json").as_object();
    ids_ = json::value_to<std::vector<int64_t>>(golden_.at("ids"));
  }

  Tensor hidden() {
    const TokenBatch batch = sequence_of(ids_);
    TreeAttention attention(batch);
    return network_->forward(batch, attention);
  }
  /// Of each token, the one behind it.
  std::vector<int64_t> tokens_behind() const {
    std::vector<int64_t> tokens(ids_.begin() + 1, ids_.end());
    tokens.push_back(golden_.at("next_token").to_number<int64_t>());
    return tokens;
  }

  const at::NoGradGuard no_grad_;
  std::unique_ptr<Network> network_;
  json::object golden_;
  std::vector<int64_t> ids_;
};

TEST_P(GoldenDrafts, HaveTheReferencesHiddenStatesAndLogits) {
  const Tensor hidden_TH = hidden();
  EXPECT_LT(largest_difference(hidden_TH, golden_.at("hidden")), kDraftTolerance);
  const Tensor last_V = network_->logits(hidden_TH.slice(0, -1))[0];
  EXPECT_LT(largest_difference(last_V, golden_.at("main_logits_last")), kDraftTolerance);
  EXPECT_EQ(last_V.argmax().item<int64_t>(), golden_.at("next_token").to_number<int64_t>());

  ASSERT_EQ(network_->num_draft_layers(), 1);
  const Tensor drafted_TH = draft_of(*network_, hidden_TH, sequence_of(tokens_behind()));
  const json::object& plain = golden_.at("plain").as_object();
  EXPECT_LT(largest_difference(drafted_TH, plain.at("hidden_normed")), kDraftTolerance);
  EXPECT_LT(largest_difference(network_->logits(drafted_TH), plain.at("logits")), kDraftTolerance);
}

/// The one layer again and again, over what it returned behind its norm.
TEST_P(GoldenDrafts, ContinueGreedilyAsTheReference) {
  std::vector<int64_t> tokens = tokens_behind();
  Tensor hidden_TH = hidden();
  for (const json::value& step : golden_.at("chain_normed").at("steps").as_array()) {
    TokenBatch batch = sequence_of(tokens);
    batch.wanted_R = at::tensor({batch.num_tokens() - 1}, at::kLong);
    const Tensor last_1H = draft_of(*network_, hidden_TH, batch);
    const Tensor logits_V = network_->logits(last_1H)[0];
    EXPECT_LT(largest_difference(logits_V, step.at("logits")), kDraftTolerance);
    const auto token = logits_V.argmax().item<int64_t>();
    EXPECT_EQ(token, step.at("token").to_number<int64_t>());
    tokens.push_back(token);
    hidden_TH = at::cat({hidden_TH, last_1H});
  }
}

TEST_P(GoldenDrafts, AreTheSameInAChainOfTheirBlock) {
  const Tensor hidden_TH = hidden();
  const TokenBatch batch = sequence_of(tokens_behind());
  const Tensor expected = draft_of(*network_, hidden_TH, batch);
  Chaining chaining(batch);
  EXPECT_TRUE(network_->draft(0, hidden_TH, batch, chaining).equal(expected));
  EXPECT_EQ(chaining.asked, network_->config().norms_add_one ? 0 : 1);
}

TEST_P(GoldenDrafts, StandBehindTheWeightsOfANetworkWithoutThem) {
  const auto without = load_network(draft_fixture(GetParam()), Precision::of("float32"));
  EXPECT_EQ(without->num_draft_layers(), 0);
  EXPECT_EQ(without->blocks().size(), 2U);
  const Weights &few = without->weights(), &all = network_->weights();
  EXPECT_LT(few.num_elements(), all.num_elements());
  EXPECT_TRUE(all.flat().narrow(0, 0, few.num_elements()).equal(few.flat()));
  EXPECT_TRUE(
      all.flat_constants().narrow(0, 0, few.flat_constants().size(0)).equal(few.flat_constants()));
  // What is left to carry are copies of the model's own tensors.
  std::vector<std::string> carried;
  for (const CarriedTensor& tensor : all.carried()) carried.push_back(tensor.name);
  if (network_->config().drafts.layers == "model.layers.") {
    EXPECT_THAT(carried, ::testing::UnorderedElementsAre("model.layers.2.embed_tokens.weight",
                                                         "model.layers.2.shared_head.head.weight"));
  } else {
    EXPECT_THAT(carried, ::testing::IsEmpty());
  }
  EXPECT_GT(few.carried().size(), carried.size());
}

TEST_P(GoldenDrafts, AreOneMoreBlockToAMachine) {
  const auto blocks = network_->blocks();
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[2].cache, blocks[1].cache);
  EXPECT_EQ(blocks[2].mixer, blocks[1].mixer);
  EXPECT_EQ(blocks[2].feed_forward, blocks[1].feed_forward);
  const ModelConfig& config = network_->config();
  int64_t told = 2 * config.vocab_size * config.hidden_size + config.hidden_size;
  for (const BlockNeeds& block : blocks) told += block.costs.parameters;
  EXPECT_EQ(told, network_->weights().num_parameters());
}

/// The mean log-prob of the tokens behind those that the layer sees.
Tensor loss_of_drafts(Network& network, const Tensor& hidden_TH, const std::vector<int64_t>& tokens,
                      Attention& attention, const TokenBatch& batch) {
  const Tensor drafted_TH = network.draft(0, hidden_TH, batch, attention);
  const int64_t count = batch.num_tokens() - 1;
  const Tensor target_R =
      at::tensor(std::vector<int64_t>(tokens.begin() + 1, tokens.end()), at::kLong);
  return -network.draft_log_probs(drafted_TH.narrow(0, 0, count), target_R).logprob_R.mean();
}

TEST_P(GoldenDrafts, HaveGradientsOfTheirOwnWeightsAlone) {
  const auto network = with_drafts(draft_fixture(GetParam()), "float64");
  const TokenBatch sequence = sequence_of(ids_), behind = sequence_of(tokens_behind());
  TreeAttention trunk(sequence);
  const Tensor hidden_TH = network->forward(sequence, trunk);
  Weights& weights = network->weights();
  weights.enable_grad();
  {
    const at::AutoGradMode grad_mode(true);
    TreeAttention attention(behind);
    loss_of_drafts(*network, hidden_TH, tokens_behind(), attention, behind).backward();
  }
  const auto value = [&] {
    TreeAttention attention(behind);
    return loss_of_drafts(*network, hidden_TH, tokens_behind(), attention, behind).item<double>();
  };
  const int64_t trunk_end =
      load_network(draft_fixture(GetParam()), Precision::of("float32"))->weights().num_elements();
  EXPECT_EQ(weights.grad().narrow(0, 0, trunk_end).count_nonzero().item<int64_t>(), 0);
  int64_t num_checked = 0;
  for (const NamedWeight& weight : weights.tensors()) {
    if (weight.offset < trunk_end) continue;
    const Tensor grad = Weights::view(weights.grad(), weight).view({-1}),
                 numbers = Weights::view(weights.flat(), weight).view({-1});
    // The element that matters most; of an expert that nobody visits there is none.
    const int64_t at = grad.abs().argmax().item<int64_t>();
    const double told = grad[at].item<double>(), before = numbers[at].item<double>();
    constexpr double kStep = 1e-5;
    numbers[at].fill_(before + kStep);
    const double above = value();
    numbers[at].fill_(before - kStep);
    const double below = value();
    numbers[at].fill_(before);
    EXPECT_NEAR((above - below) / (2 * kStep), told, 1e-6 + 1e-4 * std::abs(told)) << weight.name;
    num_checked += told != 0 ? 1 : 0;
  }
  EXPECT_GT(num_checked, 8);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenDrafts,
                         ::testing::Values("deepseek_v3", "glm4_moe", "mimo", "qwen3_next"),
                         golden_models::name_of);

class DraftFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("slime_drafts_" + std::to_string(::getpid()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  /// Every tensor of `before`, and no other, is in the directory.
  void expect_all_of(const std::filesystem::path& before) const {
    const ModelFiles expected(before), found(directory_);
    EXPECT_EQ(expected.tensors().size(), found.tensors().size());
    for (const auto& [name, location] : expected.tensors()) {
      ASSERT_TRUE(found.tensors().contains(name)) << name;
      const Tensor a = location.file->read(name), b = found.tensors().at(name).file->read(name);
      EXPECT_EQ(a.scalar_type(), b.scalar_type()) << name;
      EXPECT_TRUE(a.equal(b)) << name;
    }
  }

  std::filesystem::path directory_;
};

TEST_F(DraftFiles, AreSavedAsTheyWereRead) {
  for (const auto& model :
       {draft_fixture("deepseek_v3"), draft_fixture("glm4_moe"), draft_fixture("mimo"),
        draft_fixture("qwen3_next"), golden_models::directory("mimo"),
        golden_models::directory("qwen3_5")}) {
    SCOPED_TRACE(model.string());
    const auto network = with_drafts(model, "bfloat16");
    save_network(*network, directory_);
    expect_all_of(model);
    EXPECT_EQ(read_model_config(directory_).raw, network->config().raw);
  }
}

TEST_F(DraftFiles, MayHaveExpertsOneByOneWhereLayersHaveThemStacked) {
  ModelConfig config = read_model_config(golden_models::directory("qwen3_5_moe"));
  config.drafts.computed = config.drafts.count;
  ASSERT_EQ(config.drafts.computed, 1);
  const auto stacked = make_network(config, Precision::of("float32"), 7);
  save_network(*stacked, directory_);
  EXPECT_TRUE(with_drafts(directory_)->weights().flat().equal(stacked->weights().flat()));

  NamedTensors tensors;
  {
    const SafetensorsFile file(directory_ / "model.safetensors");
    for (const auto& [name, stored] : file.tensors()) {
      const Tensor all = file.read(name);
      const bool is_pair = name == "mtp.layers.0.mlp.experts.gate_up_proj",
                 is_down = name == "mtp.layers.0.mlp.experts.down_proj";
      if (!is_pair && !is_down) tensors.emplace_back(name, all);
      for (int64_t e = 0; (is_pair || is_down) && e < config.experts.count; ++e) {
        const std::string expert = "mtp.layers.0.mlp.experts." + std::to_string(e);
        if (is_down) {
          tensors.emplace_back(expert + ".down_proj.weight", all[e]);
          continue;
        }
        tensors.emplace_back(expert + ".gate_proj.weight",
                             all[e].narrow(0, 0, config.experts.width));
        tensors.emplace_back(expert + ".up_proj.weight",
                             all[e].narrow(0, config.experts.width, config.experts.width));
      }
    }
  }
  write_safetensors(directory_ / "model.safetensors", tensors);
  EXPECT_TRUE(with_drafts(directory_)->weights().flat().equal(stacked->weights().flat()));
}

/// What is wrong with computing them.
template <typename Make>
std::string draft_problem(const Make& make) {
  try {
    make();
    return "none";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST_F(DraftFiles, WithoutDraftLayersAreToldSo) {
  EXPECT_THAT(draft_problem([] { with_drafts(golden_models::directory("llama")); }),
              HasSubstr("has no draft layers"));
  // config.json cannot say that there are none.
  EXPECT_THAT(draft_problem([] { with_drafts(golden_models::directory("qwen3_next")); }),
              HasSubstr("has no draft layers"));
}

TEST(DraftConfig, NamesTensorsAsFilesDo) {
  const auto drafts = [](const char* name) {
    return read_model_config(golden_models::directory(name)).drafts;
  };
  EXPECT_EQ(drafts("glm4_moe").block(0), "model.layers.3.");
  EXPECT_EQ(drafts("glm4_moe").tensor(0, drafts("glm4_moe").last_norm),
            "model.layers.3.shared_head.norm.weight");
  EXPECT_EQ(drafts("mimo").tensor(0, drafts("mimo").projection),
            "model.mtp_layers.0.input_proj.weight");
  EXPECT_EQ(drafts("qwen3_5").block(0), "mtp.layers.0.");
  EXPECT_EQ(drafts("qwen3_5").tensor(0, drafts("qwen3_5").projection), "mtp.fc.weight");
  EXPECT_EQ(drafts("llama"), DraftConfig{});
}

TEST(DraftConfig, ThatIsComputedHasTheConfigJsonOfOneThatIsCarried) {
  ModelConfig config = read_model_config(golden_models::directory("qwen3_5"));
  config.raw.clear();
  const json::object carried = config_json(config);
  config.drafts.computed = config.drafts.count;
  config.drafts.has_experts_one_by_one = true;
  EXPECT_EQ(config_json(config), carried);
}

TEST(DraftLayer, IsRefusedWhereItIsNotComputed) {
  ModelConfig config = read_model_config(draft_fixture("deepseek_v3"));
  config.drafts.computed = 1;
  const comm::Mesh stages({.pp = 2}, 0, [](comm::Axis, const std::vector<int>& members) {
    return std::make_unique<comm::UnconnectedGroup>(0, static_cast<int>(members.size()));
  });
  EXPECT_THAT(draft_problem([&] { make_blank_network(config, Precision::of("float32"), stages); }),
              HasSubstr("pipeline stages"));
  ModelConfig sparse = read_model_config(golden_models::directory("deepseek_v32"));
  sparse.drafts = config.drafts;
  EXPECT_THAT(draft_problem([&] { make_blank_network(sparse, Precision::of("float32")); }),
              HasSubstr("sparse attention"));
  config.drafts.has_own_embedding = true;
  EXPECT_THAT(draft_problem([&] { make_blank_network(config, Precision::of("float32")); }),
              HasSubstr("mtp_use_dedicated_embeddings"));
}

}  // namespace
}  // namespace slime::model
