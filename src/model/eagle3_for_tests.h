#pragma once

/// EAGLE-3 directories that tests make, and what such a model computes, in float64 and single operations.
///
/// Weights are counter-based random numbers, so files are the same on every machine. The reference was written from
/// the paper (arXiv 2503.01840) and shares no code with model/eagle3.cpp. Heads, their size and the vocabulary are
/// others than any golden model's, so that shapes cannot be mixed up.
///
/// Dimensions: T tokens, H hidden size, N heads, D head size.

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/random.h"
#include "core/temporary_folder.h"
#include "model/config.h"
#include "model/eagle3.h"
#include "model/safetensors.h"

namespace slime::model {

/// Configuration and tensors of a draft model's directory, which tests change before they write it.
struct Eagle3Files {
  static constexpr int64_t kHeads = 4, kKvHeads = 1, kHeadSize = 24, kWidth = 56;

  json::object config;
  std::map<std::string, Tensor> tensors;

  int64_t integer(const char* name) const { return config.at(name).to_number<int64_t>(); }
  Tensor weight(const std::string& name) const { return tensors.at(name).to(at::kDouble); }
  /// From `from` to `to`, at the beginning of names.
  void rename(const std::string& from, const std::string& to) {
    std::map<std::string, Tensor> renamed;
    for (auto& [name, tensor] : tensors)
      renamed[name.starts_with(from) ? to + name.substr(from.size()) : name] = tensor;
    tensors = std::move(renamed);
  }
  void write(const std::filesystem::path& directory) const {
    std::filesystem::create_directories(directory);
    write_file(directory / "config.json", json_text(config));
    write_safetensors(directory / "model.safetensors",
                      NamedTensors(tensors.begin(), tensors.end()));
  }
};

/// Normal numbers, by the name of the tensor.
inline Tensor random_tensor(const std::string& name, std::vector<int64_t> shape, double scale) {
  uint64_t stream = 0;
  for (const char letter : name) stream = 31 * stream + static_cast<unsigned char>(letter);
  const Tensor tensor = at::empty(shape, at::kFloat);
  auto* numbers = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i)
    numbers[i] = static_cast<float>(scale * normal(77, stream, static_cast<uint64_t>(i)));
  return shape.size() == 1 ? 1 + 0.2 * tensor : tensor;
}

/// For a target of this shape, with `hidden` numbers a token (0: as the target) and half of its ids: id 2 i is i of the
/// draft vocabulary. It reads what enters the first block, what enters the second, and what leaves the last.
inline Eagle3Files random_eagle3(const ModelConfig& target, int64_t hidden = 0) {
  const bool is_narrower = hidden > 0;
  if (!is_narrower) hidden = target.hidden_size;
  const int64_t draft_vocab = target.vocab_size / 2,
                q = Eagle3Files::kHeads * Eagle3Files::kHeadSize,
                kv = Eagle3Files::kKvHeads * Eagle3Files::kHeadSize, width = Eagle3Files::kWidth;
  Eagle3Files files;
  files.config = {{"architectures", json::array{"LlamaForCausalLMEagle3"}},
                  {"model_type", "llama"},
                  {"vocab_size", target.vocab_size},
                  {"draft_vocab_size", draft_vocab},
                  {"hidden_size", hidden},
                  {"intermediate_size", width},
                  {"num_hidden_layers", 1},
                  {"num_attention_heads", Eagle3Files::kHeads},
                  {"num_key_value_heads", Eagle3Files::kKvHeads},
                  {"head_dim", Eagle3Files::kHeadSize},
                  {"max_position_embeddings", 64},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 5000.0},
                  {"hidden_act", "silu"},
                  {"tie_word_embeddings", false},
                  {"torch_dtype", "float32"}};
  if (is_narrower) files.config["target_hidden_size"] = target.hidden_size;
  files.config["eagle_config"] =
      json::object{{"use_aux_hidden_state", true},
                   {"eagle_aux_hidden_state_layer_ids", json::array{-1, 0, target.num_layers - 1}}};
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    const double inputs = shape.size() > 1 ? static_cast<double>(shape[1]) : 1;
    files.tensors[name] = random_tensor(name, std::move(shape), 1 / std::sqrt(inputs));
  };
  add("fc.weight", {hidden, 3 * target.hidden_size});
  add("midlayer.input_layernorm.weight", {hidden});
  add("midlayer.hidden_norm.weight", {hidden});
  add("midlayer.self_attn.q_proj.weight", {q, 2 * hidden});
  add("midlayer.self_attn.k_proj.weight", {kv, 2 * hidden});
  add("midlayer.self_attn.v_proj.weight", {kv, 2 * hidden});
  add("midlayer.self_attn.o_proj.weight", {hidden, q});
  add("midlayer.post_attention_layernorm.weight", {hidden});
  add("midlayer.mlp.gate_proj.weight", {width, hidden});
  add("midlayer.mlp.up_proj.weight", {width, hidden});
  add("midlayer.mlp.down_proj.weight", {hidden, width});
  add("norm.weight", {hidden});
  add("lm_head.weight", {draft_vocab, hidden});
  if (is_narrower) add("embed_tokens.weight", {target.vocab_size, hidden});
  files.tensors["d2t"] = at::arange(draft_vocab, at::kLong);
  files.tensors["t2d"] = at::arange(target.vocab_size, at::kLong).remainder(2).eq(0);
  return files;
}

/// The draft model in float64, written from its definition: all tokens of one sequence at once.
class Eagle3Reference {
 public:
  explicit Eagle3Reference(const Eagle3Files& files) : files_(files) {}

  Tensor fused(const Tensor& hidden_TC) const { return product(hidden_TC, "fc.weight"); }

  /// x_TH: fused states of positions 0 to T - 1, or returned ones; embedding_TH of the tokens behind. float64.
  Tensor pass(const Tensor& x_TH, const Tensor& embedding_TH) const {
    const Tensor normed_TH = normed(x_TH, "midlayer.hidden_norm.weight");
    const Tensor both =
        at::cat({normed(embedding_TH, "midlayer.input_layernorm.weight"), normed_TH}, 1);
    const json::value* flag = files_.config.if_contains("norm_before_residual");
    const Tensor residual_TH = flag != nullptr && flag->as_bool() ? normed_TH : x_TH;
    const Tensor sum_TH = residual_TH + product(attended(both), "midlayer.self_attn.o_proj.weight");
    const Tensor mlp_TH = normed(sum_TH, "midlayer.post_attention_layernorm.weight");
    const Tensor gate = product(mlp_TH, "midlayer.mlp.gate_proj.weight");
    const Tensor up = product(mlp_TH, "midlayer.mlp.up_proj.weight");
    return sum_TH + product(gate * gate.sigmoid() * up, "midlayer.mlp.down_proj.weight");
  }

  Tensor logits(const Tensor& y_TH) const {
    return product(normed(y_TH, "norm.weight"), "lm_head.weight");
  }

  struct Guess {
    int64_t token = 0;  // of the target
    double chance = 0;  // that it and all before it are right
  };
  /// `count` greedy guesses behind the last of the tokens. hidden_TC: the target's states of positions 0 to T - 1.
  /// `behind`: tokens 1 to T. `table_VH`: the embedding.
  std::vector<Guess> chain(const Tensor& hidden_TC, std::vector<int64_t> behind,
                           const Tensor& table_VH, int64_t count, double temperature = 1) const {
    std::vector<Guess> guesses;
    Tensor x_TH = fused(hidden_TC.to(at::kDouble));
    const Tensor table = table_VH.to(at::kDouble), map = files_.tensors.at("d2t");
    double chance = 1;
    for (int64_t i = 0; i < count; ++i) {
      const Tensor ids = at::tensor(behind, at::kLong);
      const Tensor last_1H = pass(x_TH, table.index_select(0, ids)).slice(0, -1);
      const Tensor shares = (logits(last_1H)[0] / temperature).softmax(0);
      const int64_t best = shares.argmax().item<int64_t>();
      chance *= shares[best].item<double>();
      guesses.push_back({best + map[best].item<int64_t>(), chance});
      behind.push_back(guesses.back().token);
      x_TH = at::cat({x_TH, last_1H});
    }
    return guesses;
  }

 private:
  Tensor product(const Tensor& x, const std::string& name) const {
    return at::matmul(x, files_.weight(name).t());
  }
  Tensor normed(const Tensor& x, const std::string& name) const {
    const double eps = files_.config.at("rms_norm_eps").to_number<double>();
    return x / (x.pow(2).mean(-1, true) + eps).sqrt() * files_.weight(name);
  }
  /// [N, T, D], rotated by position: halves with each other.
  Tensor heads(const Tensor& both, const std::string& name, int64_t count, bool rotates) const {
    constexpr int64_t size = Eagle3Files::kHeadSize;
    const int64_t tokens = both.size(0);
    const Tensor x = product(both, name).view({tokens, count, size}).transpose(0, 1);
    if (!rotates) return x;
    const double theta = files_.config.at("rope_theta").to_number<double>();
    const auto options = at::TensorOptions(at::kDouble);
    const Tensor frequency = at::pow(theta, at::arange(0, size, 2, options).neg() / double{size});
    const Tensor angle = at::arange(tokens, options).unsqueeze(1) * frequency;
    const Tensor first = x.narrow(2, 0, size / 2), second = x.narrow(2, size / 2, size / 2);
    return at::cat(
        {first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()},
        2);
  }
  Tensor attended(const Tensor& both) const {
    constexpr int64_t n = Eagle3Files::kHeads, k = Eagle3Files::kKvHeads;
    const auto shared = [&](const Tensor& x) { return x.repeat_interleave(n / k, 0); };
    const Tensor query = heads(both, "midlayer.self_attn.q_proj.weight", n, true);
    const Tensor key = shared(heads(both, "midlayer.self_attn.k_proj.weight", k, true));
    const Tensor value = shared(heads(both, "midlayer.self_attn.v_proj.weight", k, false));
    const int64_t tokens = both.size(0);
    const Tensor place = at::arange(tokens), later = place.unsqueeze(0) > place.unsqueeze(1);
    const Tensor scores =
        at::matmul(query, key.transpose(1, 2)) / std::sqrt(double{Eagle3Files::kHeadSize});
    const Tensor weights = scores.masked_fill(later, -INFINITY).softmax(-1);
    return at::matmul(weights, value).transpose(0, 1).reshape({tokens, n * Eagle3Files::kHeadSize});
  }

  const Eagle3Files& files_;
};

}  // namespace slime::model
