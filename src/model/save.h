#pragma once

/// Writer of model directories: a network's weights and config.json, as other libraries read them.

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/network.h"
#include "model/safetensors.h"

namespace slime::model {

struct SaveOptions {
  std::string dtype;  // "bfloat16", ...; empty: the precision of the weights
  /// A larger model is sharded into files of at most this size.
  uint64_t shard_bytes = uint64_t{5} << 30;
};

/// Writes config.json (as it was read, with the dtype of the file), the weights under their Hugging
/// Face names, and nothing else, into an existing directory; everything is on disk when it returns.
/// Throws std::system_error, and ConfigError as check_whole().
void save_network(Network& network, const std::filesystem::path& directory,
                  const SaveOptions& options = {});

/// The same of a network of which this rank has a part: `weights` are its whole tensors, in
/// the precision of the weights, `constants` those of all pipeline stages.
void save_network(Network& network, std::vector<TensorToWrite> weights,
                  const std::vector<NamedConstant>& constants,
                  const std::filesystem::path& directory, const SaveOptions& options = {});

/// As config.json names a precision: "bfloat16", "float16", "float32", "float64".
std::string dtype_word(at::ScalarType dtype);

/// Sets the precision that config.json names.
void tell_dtype(json::object& config, at::ScalarType dtype);

/// Throws ConfigError when `weights` are slices of a parallel layout: written under the names of
/// whole tensors nobody could read them.
void check_whole(const Weights& weights);

/// `tensors` as model.safetensors, or as numbered shards with an index when they exceed the limit.
/// `stem` is "model" for weights; an optimizer's state uses its own.
void write_sharded(const std::filesystem::path& directory, const std::string& stem,
                   const std::vector<TensorToWrite>& tensors, uint64_t shard_bytes);

}  // namespace slime::model
