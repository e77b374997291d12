/// A sequence that grows beyond the original positions of longrope: the engine draws what transformers
/// draws, and the trainer scores each token as it was drawn (docs/decisions/0095-rope-kinds.md).

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine_fixture.h"
#include "model/tree_attention.h"
#include "train/packing.h"

namespace slime {
namespace {

using testing::greedy_request;
using testing::sampled_request;
using testing::TestEngine;

const std::filesystem::path kFolder = SLIME_SOURCE_DIR "/tests/fixtures/ropes";

class EngineRopeSwitch : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / fmt::format("rope_switch_{}", ::getpid());
    std::filesystem::create_directories(directory_);
    golden_ = read_json_file(kFolder / "cases.json");
    for (const json::value& item : golden_.at("cases").as_array())
      if (item.at("name") == "phi3 longrope") case_ = item.as_object();
    json::object config = read_json_file(kFolder / "phi3.json").as_object();
    for (const auto& member : case_.at("rope").as_object()) config[member.key()] = member.value();
    std::ofstream(directory_ / "config.json") << json_text(config);
    std::filesystem::copy_file(kFolder / "phi3.safetensors", directory_ / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<model::Network> network() const {
    return model::load_network(directory_, model::Precision::of("float32"));
  }
  std::vector<TokenId> ids(std::size_t count) const {
    auto all = json::value_to<std::vector<TokenId>>(golden_.at("ids"));
    all.resize(count);
    return all;
  }

  std::filesystem::path directory_;
  json::value golden_;
  json::object case_;
};

TEST_F(EngineRopeSwitch, DrawsWhatTransformersDraws) {
  const json::object& expected = case_.at("generated").as_object();
  TestEngine bench(network(), {});
  const auto out = bench.generate(
      greedy_request(ids(static_cast<std::size_t>(expected.at("prompt").as_int64())), 16));
  EXPECT_EQ(out.output_ids, json::value_to<std::vector<TokenId>>(expected.at("ids")));
  const auto log_probs = json::value_to<std::vector<double>>(expected.at("log_probs"));
  ASSERT_EQ(out.output_log_probs.size(), log_probs.size());
  for (std::size_t i = 0; i < log_probs.size(); ++i)
    EXPECT_NEAR(out.output_log_probs[i], log_probs[i], 3e-4) << i;
}

TEST_F(EngineRopeSwitch, TheTrainerScoresEachTokenAsItWasDrawn) {
  TestEngine bench(network(), {});
  model::Network& trained = bench.network();
  const int64_t rotary_switch = trained.config().rotary_switch();
  ASSERT_EQ(rotary_switch, 96);
  for (const std::size_t length : {20, 90, 95, 96, 97, 120}) {
    const auto prompt = ids(length);
    const auto out = bench.generate(sampled_request(prompt, 20, length));
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), out.output_ids.begin(), out.output_ids.end());
    const bool is_long = static_cast<int64_t>(tokens.size()) > rotary_switch;
    const train::Sequence sequence{.tokens = tokens,
                                   .prompt_length = static_cast<int64_t>(length),
                                   .rotary_offset = is_long ? trained.config().max_positions : 0,
                                   .num_drawn_short = is_long ? rotary_switch : 0};
    const at::NoGradGuard no_grad;
    const train::PackedBatch batch = train::pack({&sequence, 1}, {});
    model::TreeAttention attention(batch.tokens);
    const Tensor hidden_UH = trained.forward(batch.tokens, attention);
    const Tensor log_p = trained.logits(hidden_UH.index_select(0, batch.row_S)).log_softmax(1);
    const Tensor of_target_S = log_p.gather(1, batch.target_S.unsqueeze(1)).squeeze(1);
    const Tensor scored_T = of_target_S.index_select(0, batch.scored_T);
    ASSERT_EQ(scored_T.size(0), static_cast<int64_t>(out.output_log_probs.size()));
    for (int64_t t = 0; t < scored_T.size(0); ++t)
      EXPECT_NEAR(scored_T[t].item<float>(), out.output_log_probs[static_cast<std::size_t>(t)],
                  3e-4)
          << "token " << t << " behind a prompt of " << length;
  }
}

}  // namespace
}  // namespace slime
