/// A draft model that was made for its target guesses nearly all tokens, and one of random numbers nearly none.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "draft_cases.h"
#include "eagle3_cases.h"

namespace slime {
namespace {

using engine::GenerateRequest;
using engine::GenerateUpdate;
using model::Eagle3Files;
using testing::drafting_by;
using testing::expect_equal;
using testing::load_files;
using testing::sampled_request;
using testing::TestEngine;

/// A target that goes from each token to another one, and a draft model that knows where.
class Eagle3OfARing : public ::testing::Test {
 protected:
  static constexpr int64_t kIds = 160, kHidden = 64, kHeadSize = 32;
  /// What follows id v: 3 v + 7 modulo the vocabulary, in which 3 has an inverse.
  static int64_t next(int64_t id) { return (3 * id + 7) % kIds; }

  Eagle3OfARing() {
    const json::object config{{"architectures", json::array{"LlamaForCausalLM"}},
                              {"model_type", "llama"},
                              {"vocab_size", kIds},
                              {"hidden_size", kHidden},
                              {"intermediate_size", 32},
                              {"num_hidden_layers", 3},
                              {"num_attention_heads", 2},
                              {"num_key_value_heads", 2},
                              {"head_dim", kHeadSize},
                              {"max_position_embeddings", 256},
                              {"rms_norm_eps", 1e-6},
                              {"tie_word_embeddings", false},
                              {"torch_dtype", "float32"}};
    shape_ = model::parse_model_config(config, "the ring");
    table_VH_ = model::random_tensor("ring", {kIds, kHidden}, 1);
  }

  /// Attention and feed-forward layers add nothing: logits are those of the last token's embedding.
  std::unique_ptr<model::Network> ring() {
    auto network = model::make_network(shape_, model::Precision::of("float32"), 1);
    model::Weights& weights = network->weights();
    for (const model::NamedWeight& weight : weights.tensors()) {
      Tensor view = model::Weights::view(weights.flat(), weight);
      if (weight.name.ends_with("o_proj.weight") || weight.name.ends_with("down_proj.weight"))
        view.zero_();
      if (weight.name.ends_with("embed_tokens.weight")) view.copy_(table_VH_);
      if (weight.name == "lm_head.weight")
        for (int64_t id = 0; id < kIds; ++id) view[next(id)].copy_(table_VH_[id]);
    }
    return network;
  }

  /// Its two heads find the positions of the same token as the last one's, itself among them, and hand on
  /// c (norm(e) - norm(h)) of 32 numbers each. With h = c norm(e') of the guess before that leaves c norm(e), and
  /// fc of zeros makes h = 0 where the target's states come in.
  Eagle3Files knowing() {
    Eagle3Files files = model::random_eagle3(shape_);
    files.config["num_attention_heads"] = files.config["num_key_value_heads"] = 2;
    files.config["head_dim"] = kHeadSize;
    files.config["draft_vocab_size"] = kIds;
    const Tensor one = at::eye(kHidden), none = at::zeros({kHidden, kHidden});
    constexpr double kSharp = 4, kScale = 8;
    const auto set = [&](const std::string& name, const Tensor& x) {
      files.tensors[name] = x.to(at::kFloat).contiguous();
    };
    set("fc.weight", at::zeros({kHidden, 3 * kHidden}));
    for (const char* norm : {"norm", "midlayer.input_layernorm", "midlayer.hidden_norm",
                             "midlayer.post_attention_layernorm"})
      set(std::string(norm) + ".weight", at::ones({kHidden}));
    set("midlayer.self_attn.q_proj.weight", at::cat({kSharp * one, none}, 1));
    set("midlayer.self_attn.k_proj.weight", at::cat({kSharp * one, none}, 1));
    set("midlayer.self_attn.v_proj.weight", at::cat({one, -1 * one}, 1));
    set("midlayer.self_attn.o_proj.weight", kScale * one);
    set("midlayer.mlp.down_proj.weight", at::zeros({kHidden, Eagle3Files::kWidth}));
    const Tensor head = at::empty({kIds, kHidden});
    for (int64_t id = 0; id < kIds; ++id) head[next(id)].copy_(table_VH_[id]);
    set("lm_head.weight", head);
    files.tensors["d2t"] = at::zeros({kIds}, at::kLong);
    return files;
  }

  GenerateUpdate answer(TestEngine& bench, double temperature) {
    GenerateRequest request = sampled_request({5, 11, 90}, 100, 3);
    request.sampling.temperature = temperature;
    return bench.generate(request);
  }

  const at::NoGradGuard no_grad_;
  model::ModelConfig shape_;
  Tensor table_VH_;
};

TEST_F(Eagle3OfARing, NearlyAllGuessesAreKept) {
  TestEngine plain(ring(), {});
  for (const bool always : {true, false}) {
    const auto draft = load_files(knowing(), shape_);
    TestEngine bench(ring(), drafting_by(draft, 4, /*texts=*/false, always));
    for (const double temperature : {0.0, 1.0}) {
      const GenerateUpdate wanted = answer(plain, temperature), got = answer(bench, temperature);
      expect_equal(got, wanted);
      for (std::size_t i = 1; i < got.output_ids.size(); ++i)
        EXPECT_EQ(got.output_ids[i], next(got.output_ids[i - 1])) << "the ring";
    }
    const DraftCounts counts = bench.engine().load()->drafts;
    if (always) {
      EXPECT_GT(counts.accept_rate(), 0.9);
      EXPECT_GT(counts.accept_length(), 4);
    }
  }
}

TEST_F(Eagle3OfARing, ADraftModelOfRandomNumbersIsRightAlmostNever) {
  TestEngine bench(ring(), drafting_by(load_files(model::random_eagle3(shape_), shape_), 4));
  answer(bench, 1);
  EXPECT_LT(bench.engine().load()->drafts.accept_rate(), 0.2);
}

}  // namespace
}  // namespace slime
