#include "model/save.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace slime::model {
namespace {

at::ScalarType scalar_type(const std::string& dtype) { return Precision::of(dtype).weights; }

std::string dtype_word(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    default:
      return "float32";
  }
}

json::object rope_json(const Rope& rope) {
  json::object object{{"rope_theta", rope.theta}, {"rope_type", "default"}};
  if (rope.kind == Rope::Kind::kLinear) {
    object["rope_type"] = "linear";
    object["factor"] = rope.factor;
  }
  if (rope.kind == Rope::Kind::kLlama3) {
    object["rope_type"] = "llama3";
    object["factor"] = rope.factor;
    object["low_freq_factor"] = rope.low_freq_factor;
    object["high_freq_factor"] = rope.high_freq_factor;
    object["original_max_position_embeddings"] = rope.original_max_positions;
  }
  return object;
}

std::string class_name(const std::string& model_type) {
  return fmt::format("{:c}{}ForCausalLM", std::toupper(model_type.at(0)), model_type.substr(1));
}

}  // namespace

json::object config_json(const ModelConfig& config) {
  if (!config.raw.empty()) return config.raw;
  json::object out;
  out["architectures"] = json::array{json::string(class_name(config.model_type))};
  out["model_type"] = config.model_type;
  out["vocab_size"] = config.vocab_size;
  out["hidden_size"] = config.hidden_size;
  out["intermediate_size"] = config.intermediate_size;
  out["num_hidden_layers"] = config.num_layers;
  out["num_attention_heads"] = config.num_heads;
  out["num_key_value_heads"] = config.num_kv_heads;
  out["head_dim"] = config.head_dim;
  if (config.rotary_dim != config.head_dim) {
    out["partial_rotary_factor"] =
        static_cast<double>(config.rotary_dim) / static_cast<double>(config.head_dim);
  }
  out["hidden_act"] = "silu";
  out["rms_norm_eps"] = config.norm_eps;
  out["max_position_embeddings"] = config.max_positions;
  out["rope_theta"] = config.rope.theta;
  if (config.rope.kind == Rope::Kind::kDefault) {
    out["rope_scaling"] = nullptr;
  } else {
    json::object scaling = rope_json(config.rope);
    scaling.erase("rope_theta");
    out["rope_scaling"] = std::move(scaling);
  }
  out["rope_parameters"] = rope_json(config.rope);
  out["tie_word_embeddings"] = config.ties_embeddings;
  out["attention_bias"] = config.model_type != "qwen2" && config.has_qkv_bias;
  out["mlp_bias"] = config.has_mlp_bias;
  out["initializer_range"] = config.initializer_range;
  int64_t window = 0;
  json::array types;
  for (const int64_t w : config.window) {
    window = std::max(window, w);
    types.emplace_back(w > 0 ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = std::move(types);
  if (window > 0) {
    out["sliding_window"] = window;
    out["use_sliding_window"] = true;
  } else {
    out["sliding_window"] = nullptr;
  }
  if (!config.eos_token_ids.empty()) out["eos_token_id"] = json::value_from(config.eos_token_ids);
  return out;
}

void write_sharded(const std::filesystem::path& directory, const std::string& stem,
                   const NamedTensors& tensors, at::ScalarType dtype, uint64_t shard_bytes) {
  std::vector<NamedTensors> shards(1);
  uint64_t total = 0, filled = 0;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.numel()) * c10::elementSize(dtype);
    if (filled > 0 && filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().emplace_back(name, tensor);
    filled += bytes;
    total += bytes;
  }
  const auto single = directory / (stem + ".safetensors");
  const auto index = directory / (stem + ".safetensors.index.json");
  if (shards.size() == 1) {
    write_safetensors(single, shards[0], dtype);
    std::filesystem::remove(index);
  } else {
    json::object map;
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string file =
          fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, shards.size());
      write_safetensors(directory / file, shards[i], dtype);
      for (const auto& [name, tensor] : shards[i]) map[name] = file;
    }
    write_file(index, to_pretty_json(json::object{{"metadata", {{"total_size", total}}},
                                                  {"weight_map", map}}));
    std::filesystem::remove(single);
  }
  sync_directory(directory);
}

void check_whole(const Weights& weights) {
  for (const NamedWeight& weight : weights.tensors()) {
    if (weight.slice.dim < 0) continue;
    throw ConfigError(fmt::format(
        "{} is a slice [{}] of [{}] on this rank: slices are not written under the names of whole "
        "tensors; gather them first, or save with tensor parallelism of 1",
        weight.name, fmt::join(weight.shape, ", "), fmt::join(weight.full_shape, ", ")));
  }
}

void save_network(Network& network, const std::filesystem::path& directory,
                  const SaveOptions& options) {
  Weights& weights = network.weights();
  check_whole(weights);
  const at::ScalarType dtype =
      options.dtype.empty() ? weights.flat().scalar_type() : scalar_type(options.dtype);
  json::object config = config_json(network.config());
  // The newer form writes "dtype"; everything reads "torch_dtype".
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype_word(dtype);
  write_file(directory / "config.json", to_pretty_json(config));
  NamedTensors tensors;
  for (const NamedWeight& weight : weights.tensors()) {
    tensors.emplace_back(weight.name, Weights::view(weights.flat(), weight));
  }
  write_sharded(directory, "model", tensors, dtype, options.shard_bytes);
}

}  // namespace slime::model
