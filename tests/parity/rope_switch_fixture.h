#pragma once

/// A tiny Phi-3 whose longrope changes its table at 96 tokens, with what transformers computes of it
/// (tests/fixtures/ropes), and the comparison of engine and trainer on both sides of that length.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "engine_fixture.h"
#include "model/tree_attention.h"
#include "text/packed_files_for_tests.h"
#include "train/packing.h"

namespace slime::testing {

class RopeSwitch : public ::testing::Test {
 protected:
  static std::filesystem::path folder() { return SLIME_SOURCE_DIR "/tests/fixtures/ropes"; }

  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / fmt::format("rope_switch_{}", ::getpid());
    std::filesystem::create_directories(directory_);
    golden_ = text::unpacked_json(folder() / "cases.json.xz");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  const json::object& case_named(std::string_view name) const {
    for (const json::value& item : golden_.at("cases").as_array())
      if (std::string_view(item.at("name").as_string()) == name) return item.as_object();
    throw std::runtime_error(fmt::format("no case {}", name));
  }

  std::unique_ptr<model::Network> network(
      const model::Precision& precision = model::Precision::of("float32"),
      std::string_view name = "phi3 longrope") const {
    json::object config = read_json_file(folder() / "phi3.json").as_object();
    for (const auto& member : case_named(name).at("rope").as_object())
      config[member.key()] = member.value();
    std::ofstream(directory_ / "config.json") << json_text(config);
    std::filesystem::copy_file(folder() / "phi3.safetensors", directory_ / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    return model::load_network(directory_, precision);
  }

  std::vector<TokenId> ids(std::size_t count) const {
    auto all = json::value_to<std::vector<TokenId>>(golden_.at("ids"));
    all.resize(count);
    return all;
  }

  /// From 90 tokens of prompt, over the change at 96.
  void expect_what_transformers_samples(TestEngine& bench, double tolerance) const {
    const json::object& expected = case_named("phi3 longrope").at("generated").as_object();
    const auto out = bench.generate(
        greedy_request(ids(static_cast<std::size_t>(expected.at("prompt").as_int64())), 16));
    EXPECT_EQ(out.output_ids, json::value_to<std::vector<TokenId>>(expected.at("ids")));
    const auto log_probs = json::value_to<std::vector<double>>(expected.at("log_probs"));
    ASSERT_EQ(out.output_log_probs.size(), log_probs.size());
    for (std::size_t i = 0; i < log_probs.size(); ++i)
      EXPECT_NEAR(out.output_log_probs[i], log_probs[i], tolerance) << i;
  }

  /// The trainer's log-probs of a sampled response are the engine's, whatever table they began with.
  void expect_scores_as_sampled(TestEngine& bench, std::size_t prompt_length,
                                double tolerance) const {
    model::Network& trained = bench.network();
    const int64_t rotary_switch = trained.config().rotary_switch();
    ASSERT_EQ(rotary_switch, 96);
    const auto prompt = ids(prompt_length);
    const auto out = bench.generate(sampled_request(prompt, 20, prompt_length));
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), out.output_ids.begin(), out.output_ids.end());
    const bool is_long = static_cast<int64_t>(tokens.size()) > rotary_switch;
    const train::Sequence sequence{.tokens = tokens,
                                   .prompt_length = static_cast<int64_t>(prompt_length),
                                   .rotary_offset = is_long ? trained.config().max_positions : 0,
                                   .num_sampled_short = is_long ? rotary_switch : 0};
    const at::NoGradGuard no_grad;
    train::PackedBatch batch = train::pack({&sequence, 1}, {});
    const at::Device device = trained.weights().flat().device();
    batch.tokens.ids_T = batch.tokens.ids_T.to(device);
    batch.tokens.rotary_row_T = batch.tokens.rotary_row_T.to(device);
    model::TreeAttention attention(batch.tokens);
    const Tensor hidden_UH = trained.forward(batch.tokens, attention);
    const Tensor log_p =
        trained.logits(hidden_UH.index_select(0, batch.row_S.to(device))).log_softmax(1).cpu();
    const Tensor of_target_S = log_p.gather(1, batch.target_S.unsqueeze(1)).squeeze(1);
    const Tensor scored_T = of_target_S.index_select(0, batch.scored_T);
    ASSERT_EQ(scored_T.size(0), static_cast<int64_t>(out.output_log_probs.size()));
    for (int64_t t = 0; t < scored_T.size(0); ++t)
      EXPECT_NEAR(scored_T[t].item<float>(), out.output_log_probs[static_cast<std::size_t>(t)],
                  tolerance)
          << "token " << t << " after a prompt of " << prompt_length;
  }

  std::filesystem::path directory_;
  json::value golden_;
};

}  // namespace slime::testing
