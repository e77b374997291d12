#include "model/save.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "model/config_json.h"

namespace slime::model {
namespace {

at::ScalarType scalar_type(const std::string& dtype) { return Precision::of(dtype).weights; }

/// The digits that the file had, where the weights have no others.
TensorToWrite as_stored(TensorToWrite tensor, const WidelyStored& stored, at::ScalarType weights) {
  tensor.dtype = stored.value.scalar_type();
  tensor.bring = [bring = std::move(tensor.bring), stored, weights] {
    const Tensor now = bring().cpu();
    return now.to(weights).equal(stored.value.to(weights)) ? stored.value : now;
  };
  return tensor;
}

}  // namespace

void write_sharded(const std::filesystem::path& directory, const std::string& stem,
                   const std::vector<TensorToWrite>& tensors, uint64_t shard_bytes) {
  std::vector<std::vector<TensorToWrite>> shards(1);
  uint64_t total = 0, filled = 0;
  for (const TensorToWrite& tensor : tensors) {
    const uint64_t bytes = bytes_of(tensor);
    if (filled > 0 && filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += bytes;
    total += bytes;
  }
  const auto single = directory / (stem + ".safetensors");
  const auto index = directory / (stem + ".safetensors.index.json");
  if (shards.size() == 1) {
    write_safetensors(single, shards[0]);
    std::filesystem::remove(index);
  } else {
    json::object map;
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string file =
          fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, shards.size());
      write_safetensors(directory / file, shards[i]);
      for (const TensorToWrite& tensor : shards[i]) map[tensor.name] = file;
    }
    write_file(index, to_pretty_json(json::object{{"metadata", {{"total_size", total}}},
                                                  {"weight_map", map}}));
    std::filesystem::remove(single);
  }
  sync_directory(directory);
}

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

void tell_dtype(json::object& config, at::ScalarType dtype) {
  // Models that see images keep it in the settings of their text.
  json::value* text = config.if_contains("text_config");
  const bool is_outside = config.contains("dtype") || config.contains("torch_dtype");
  json::object& told =
      text != nullptr && text->is_object() && !is_outside ? text->get_object() : config;
  // The newer form writes "dtype"; everything reads "torch_dtype".
  told[told.contains("dtype") ? "dtype" : "torch_dtype"] = dtype_word(dtype);
}

void check_whole(const Weights& weights) {
  for (const NamedWeight& weight : weights.tensors()) {
    if (weight.slices.is_whole() && !weight.is_of_own_expert) continue;
    throw ConfigError(fmt::format(
        "{} is a slice [{}] of [{}] on this rank: slices are not written under the names of whole "
        "tensors; gather them first, or save with tensor parallelism of 1",
        weight.name, fmt::join(weight.shape, ", "), fmt::join(weight.full_shape, ", ")));
  }
}

void save_network(Network& network, const std::filesystem::path& directory,
                  const SaveOptions& options) {
  const Weights& weights = network.weights();
  check_whole(weights);
  NamedTensors tensors;
  for (const NamedWeight& weight : weights.tensors()) {
    tensors.emplace_back(weight.name, Weights::view(weights.flat(), weight));
  }
  save_network(network, to_write(tensors), weights.constants(), directory, options);
}

void save_network(Network& network, std::vector<TensorToWrite> tensors,
                  const std::vector<NamedConstant>& constants,
                  const std::filesystem::path& directory, const SaveOptions& options) {
  const Weights& weights = network.weights();
  const at::ScalarType dtype =
      options.dtype.empty() ? weights.flat().scalar_type() : scalar_type(options.dtype);
  json::object config = config_json(network.config());
  config.erase("quantization_config");  // of the files that were read
  tell_dtype(config, dtype);
  write_file(directory / "config.json", to_pretty_json(config));
  for (TensorToWrite& tensor : tensors) tensor.dtype = dtype;
  for (const WidelyStored& stored : weights.widely_stored()) {
    const auto found = std::ranges::find(tensors, stored.name, &TensorToWrite::name);
    if (found != tensors.end())
      *found = as_stored(std::move(*found), stored, weights.flat().scalar_type());
  }
  // Behind them what stays in its own precision.
  NamedTensors as_they_are;
  for (const NamedConstant& constant : constants)
    as_they_are.emplace_back(constant.name, constant.value);
  for (const CarriedTensor& carried : weights.carried())
    as_they_are.emplace_back(carried.name, carried.file->read(carried.name));
  std::ranges::move(to_write(as_they_are), std::back_inserter(tensors));
  write_sharded(directory, "model", tensors, options.shard_bytes);
}

}  // namespace slime::model
