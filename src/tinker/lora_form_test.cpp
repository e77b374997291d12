#include "tinker/lora_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/golden_models_for_tests.h"

namespace slime::tinker {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr int64_t kMostRank = 64;

LoraWish wish_of(const char* text) {
  const json::value body = parse_json(text, "test");
  return read_lora(FieldReader(body.as_object(), ""), kMostRank, 7);
}

model::AdapterForm form_on(const char* model, const LoraWish& wish) {
  return form_of(wish, model::read_model_config(golden_models::directory(model)), "base");
}

std::vector<std::string> modules(const model::AdapterForm& form) {
  std::vector<std::string> names;
  for (const auto& pair : form.pairs) names.push_back(pair.module);
  return names;
}

TEST(LoraForm, WithoutAWishAllWeightsTrain) {
  EXPECT_EQ(wish_of("{}").rank, 0);
  EXPECT_EQ(wish_of(R"({"lora_config": {"rank": 0}})").rank, 0);
}

TEST(LoraForm, TheSeedIsTheRequestsOrOnesOwnAndComesBack) {
  EXPECT_EQ(wish_of(R"({"lora_config": {"rank": 4}})").seed, 7U);
  LoraWish wish = wish_of(R"({"lora_config": {"rank": 4, "seed": 3, "train_mlp": false}})");
  EXPECT_EQ(wish.seed, 3U);
  wish.seed = ~uint64_t{0};
  const json::object kept{{"lora_config", to_json(wish)}};
  const LoraWish again = read_lora(FieldReader(kept, ""), kMostRank, 0);
  EXPECT_EQ(again.seed, wish.seed);
  EXPECT_EQ(again.rank, 4);
  EXPECT_FALSE(again.trains_mlp);
  EXPECT_TRUE(again.trains_output);
}

TEST(LoraForm, ARankBeyondTheLimitIsRefused) {
  EXPECT_THROW(wish_of(R"({"lora_config": {"rank": 65}})"), ConfigError);
}

TEST(LoraForm, TrainsAttentionFeedForwardLayersAndTheHead) {
  const model::AdapterForm form = form_on("qwen3", {.rank = 4});
  EXPECT_THAT(form.config.targets,
              UnorderedElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                   "down_proj", "lm_head"));
  EXPECT_EQ(form.pairs.front().rank, 4);
  EXPECT_EQ(form.pairs.front().scale, 8) << "alpha is 32";
  const json::object told = describe(form);
  EXPECT_EQ(told, (json::object{{"is_lora", true},
                                {"lora_rank", 4},
                                {"train_unembed", true},
                                {"train_mlp", true},
                                {"train_attn", true}}));
}

TEST(LoraForm, PartsAreLeftOut) {
  const model::AdapterForm attention =
      form_on("qwen3", {.rank = 2, .trains_mlp = false, .trains_output = false});
  EXPECT_THAT(modules(attention), Each(HasSubstr("self_attn")));
  EXPECT_EQ(describe(attention).at("train_mlp"), false);
  const model::AdapterForm mlp =
      form_on("qwen3", {.rank = 2, .trains_attention = false, .trains_output = false});
  EXPECT_THAT(modules(mlp), Each(HasSubstr("mlp")));
  EXPECT_EQ(describe(mlp).at("train_attn"), false);
  EXPECT_THROW(
      form_on("qwen3",
              {.rank = 2, .trains_attention = false, .trains_mlp = false, .trains_output = false}),
      ConfigError);
}

TEST(LoraForm, ExpertsTrainAndRoutersDoNot) {
  const std::vector<std::string> names = modules(form_on("deepseek_v3", {.rank = 2}));
  EXPECT_THAT(names, Contains("model.layers.1.mlp.experts.0.up_proj"));
  EXPECT_THAT(names, Contains("model.layers.1.mlp.shared_experts.down_proj"));
  EXPECT_THAT(names, Contains("model.layers.0.self_attn.kv_b_proj"));
  EXPECT_THAT(names, Not(Contains("model.layers.1.mlp.gate")));
}

}  // namespace
}  // namespace slime::tinker
