#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "model/families/family.h"
#include "model/golden_models_for_tests.h"

namespace slime::model {
namespace {

using ::testing::HasSubstr;

std::filesystem::path fixture(const std::string& name) { return golden_models::directory(name); }

ModelConfig parse_file(const std::string& name, const char* file) {
  return parse_model_config(read_json_file(fixture(name) / file).as_object(), file);
}

json::object llama() { return read_json_file(fixture("llama") / "config.json").as_object(); }

std::string problem_of(const json::object& object) {
  try {
    parse_model_config(object, "config.json");
    return "none";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ModelConfig, MeansTheSameInBothForms) {
  for (const char* name : golden_models::all()) {
    const char* other = std::filesystem::exists(fixture(name) / "config.v5.json")
                            ? "config.v5.json"
                            : "config.hub.json";
    const ModelConfig a = parse_file(name, "config.json"), b = parse_file(name, other);
    EXPECT_EQ(a.head_dim, b.head_dim) << name;
    EXPECT_EQ(a.rotary_dim, b.rotary_dim) << name;
    EXPECT_EQ(a.window, b.window) << name;
    EXPECT_EQ(a.dtype, b.dtype) << name;
    EXPECT_EQ(a.rope.kind, b.rope.kind) << name;
    EXPECT_EQ(a.rope.theta, b.rope.theta) << name;
    EXPECT_EQ(a.rope.factor, b.rope.factor) << name;
    EXPECT_EQ(a.rope.original_max_positions, b.rope.original_max_positions) << name;
    EXPECT_EQ(a.ties_embeddings, b.ties_embeddings) << name;
    // The library writes its own end token into the newer form of a file that has none.
    if (!a.eos_token_ids.empty()) {
      EXPECT_EQ(a.eos_token_ids, b.eos_token_ids) << name;
    }
    EXPECT_EQ(a.has_qkv_bias, b.has_qkv_bias) << name;
    EXPECT_EQ(a.experts, b.experts) << name;
    EXPECT_EQ(a.latent, b.latent) << name;
    EXPECT_EQ(a.delta, b.delta) << name;
    EXPECT_EQ(a.local_rope, b.local_rope) << name;
    EXPECT_EQ(a.activation, b.activation) << name;
    EXPECT_EQ(a.rope, b.rope) << name;
  }
}

TEST(ModelConfig, KnowsWhichLayersSlide) {
  EXPECT_THAT(parse_file("mistral", "config.json").window, ::testing::ElementsAre(16, 16));
  EXPECT_THAT(parse_file("qwen2", "config.json").window, ::testing::ElementsAre(0, 0, 0));
  json::object qwen2 = read_json_file(fixture("qwen2") / "config.json").as_object();
  qwen2["use_sliding_window"] = true;
  EXPECT_THAT(parse_model_config(qwen2, "c").window, ::testing::ElementsAre(0, 0, 32));
}

TEST(ModelConfig, KnowsWhichLayersHaveExperts) {
  EXPECT_THAT(parse_file("qwen3_moe", "config.json").experts.in_layer,
              ::testing::ElementsAre(true, false, true));
  json::object object = read_json_file(fixture("qwen3_moe") / "config.json").as_object();
  object["decoder_sparse_step"] = 2;
  object["mlp_only_layers"] = json::array{};
  EXPECT_THAT(parse_model_config(object, "c").experts.in_layer,
              ::testing::ElementsAre(false, true, false));
  object["num_experts_per_tok"] = 9;
  EXPECT_THAT(problem_of(object), HasSubstr("num_experts_per_tok must be at most num_experts (8)"));
  object.erase("num_experts");
  EXPECT_THAT(problem_of(object), HasSubstr("num_experts is missing"));
  object["use_sliding_window"] = true;
  EXPECT_THAT(problem_of(object), HasSubstr("use_sliding_window is not supported"));
}

TEST(ModelConfig, KnowsWhichLayersAreGatedDeltaNets) {
  const ModelConfig next = parse_file("qwen3_next", "config.json");
  EXPECT_THAT(next.delta.in_layer, ::testing::ElementsAre(true, true, true, false));
  EXPECT_TRUE(next.delta.is_grouped_by_key_head);
  EXPECT_TRUE(next.has_output_gate);
  EXPECT_TRUE(next.norms_add_one);
  json::object object = read_json_file(fixture("qwen3_next") / "config.json").as_object();
  object["full_attention_interval"] = 2;
  EXPECT_THAT(parse_model_config(object, "c").delta.in_layer,
              ::testing::ElementsAre(true, false, true, false));
  object["layer_types"] = json::array{"full_attention", "sliding_attention"};
  EXPECT_THAT(problem_of(object), HasSubstr("one entry per layer (4), not 2"));
  EXPECT_THAT(problem_of(object), HasSubstr("layer_types[1] must be one of full_attention, "
                                            "linear_attention"));
  object["linear_num_value_heads"] = 3;
  EXPECT_THAT(problem_of(object), HasSubstr("must be a multiple of linear_num_key_heads (2)"));
}

TEST(ModelConfig, SoftCapsThatAreAbsentAreTheFamilysAndNullIsNone) {
  json::object object = read_json_file(fixture("gemma2") / "config.json").as_object();
  object.erase("attn_logit_softcapping");
  object.erase("final_logit_softcapping");
  EXPECT_EQ(parse_model_config(object, "c").score_cap, 50);
  EXPECT_EQ(parse_model_config(object, "c").logit_cap, 30);
  object["attn_logit_softcapping"] = object["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(parse_model_config(object, "c").score_cap, 0);
  EXPECT_EQ(parse_model_config(object, "c").logit_cap, 0);
  object["attn_logit_softcapping"] = 1e6;
  EXPECT_THAT(problem_of(object), HasSubstr("attn_logit_softcapping"));
  object["attn_logit_softcapping"] = 50;
  object.erase("sliding_window");
  EXPECT_EQ(parse_model_config(object, "c").window[0], 4096);
  object["sliding_window"] = nullptr;
  EXPECT_EQ(parse_model_config(object, "c").window[0], 0);
  object = read_json_file(fixture("gemma3_text") / "config.json").as_object();
  object.erase("attn_logit_softcapping");
  EXPECT_EQ(parse_model_config(object, "c").score_cap, 0);
}

TEST(ModelConfig, OfAModelThatSeesImagesIsThatOfItsText) {
  const ModelConfig whole = parse_file("qwen3_5", "config.json"),
                    text = parse_file("qwen3_5", "config.v5.json");
  EXPECT_EQ(whole.tensor_prefix, "model.language_model.");
  EXPECT_EQ(text.tensor_prefix, "model.");
  EXPECT_EQ(text.model_type, "qwen3_5_text");
  EXPECT_THAT(whole.carried_prefixes, ::testing::ElementsAre("model.visual.", "mtp."));
  EXPECT_THAT(whole.eos_token_ids, ::testing::ElementsAre(2));
  json::object object = read_json_file(fixture("qwen3_5") / "config.json").as_object();
  object.erase("text_config");
  EXPECT_THAT(problem_of(object), HasSubstr("text_config"));
}

TEST(ModelConfig, EndTokensAreThoseOfBothFiles) {
  EXPECT_THAT(read_model_config(fixture("llama3_rope")).eos_token_ids,
              ::testing::ElementsAre(301, 308, 309));
  const auto folder = std::filesystem::path(::testing::TempDir()) / "end_tokens";
  std::filesystem::create_directories(folder);
  json::object config = llama();
  config["eos_token_id"] = 2;
  const auto both = [&](const char* generation) {
    std::ofstream(folder / "config.json") << json_text(config);
    std::ofstream(folder / "generation_config.json") << generation;
    return read_model_config(folder).eos_token_ids;
  };
  EXPECT_THAT(both(R"({"eos_token_id": [7, 2, 9]})"), ::testing::ElementsAre(2, 7, 9));
  EXPECT_THAT(both(R"({"eos_token_id": 7})"), ::testing::ElementsAre(2, 7));
  EXPECT_THAT(both("{}"), ::testing::ElementsAre(2));
  std::filesystem::remove_all(folder);
}

TEST(ModelConfig, NamesEveryFieldItDoesNotUnderstand) {
  struct Case {
    const char* field;
    json::value value;
    std::string problem;
  };
  const Case cases[] = {
      {"model_type", "mamba", "model_type must be one of " + family_names() + ", not \"mamba\""},
      {"model_type", nullptr, "model_type"},
      {"hidden_act", "gelu", "hidden_act must be one of silu, swish, not \"gelu\""},
      {"hidden_size", "72", "hidden_size"},
      {"hidden_size", -1, "hidden_size"},
      {"hidden_size", 72.5, "hidden_size"},
      {"vocab_size", 1e12, "vocab_size"},
      {"num_hidden_layers", 0, "num_hidden_layers"},
      {"num_attention_heads", 5, "num_attention_heads"},
      {"head_dim", 13, "head_dim"},
      {"rms_norm_eps", -1, "rms_norm_eps"},
      {"rope_theta", "ten", "rope_theta"},
      {"rope_scaling",
       {{"type", "ntk"}, {"factor", 2.0}},
       "rope_scaling.type must be one of default, linear, dynamic, llama3, yarn, longrope, su, not "
       "\"ntk\""},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}, "low_freq_factor"},
      {"rope_scaling", 7, "rope_scaling"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor"},
      {"attention_dropout", 0.1, "attention_dropout"},
      {"quantization_config", {{"bits", 4}}, "quantization_config"},
      {"quantization_config",
       {{"quant_method", "fp8"}, {"fmt", "e5m2"}, {"weight_block_size", {128, 128}}},
       "quantization_config.fmt must be e4m3"},
      {"torch_dtype", "int8", "torch_dtype"},
      {"tie_word_embeddings", "yes", "tie_word_embeddings"},
      {"eos_token_id", true, "eos_token_id"},
      {"eos_token_id", json::array{-1}, "eos_token_id"},
      {"layer_types", json::array{"full_attention"}, "one entry per layer (3), not 1"},
      {"layer_types", json::array{"full_attention", "chunked", "full_attention"}, "layer_types[1]"},
      {"layer_types", json::array{"sliding_attention", "full_attention", "full_attention"},
       "gives no window"},
  };
  EXPECT_EQ(problem_of(llama()), "none");
  for (const Case& c : cases) {
    json::object object = llama();
    object[c.field] = c.value;
    EXPECT_THAT(problem_of(object), HasSubstr(c.problem)) << c.field;
  }
}

TEST(ModelConfig, ListsAllProblemsAtOnce) {
  json::object object = llama();
  object["hidden_act"] = "gelu";
  object.erase("vocab_size");
  EXPECT_THAT(
      problem_of(object),
      ::testing::AllOf(HasSubstr("hidden_act"),
                       HasSubstr("vocab_size is missing; it must be a whole number from 1 to")));
}

}  // namespace
}  // namespace slime::model
