#pragma once

/// The weight files of a model directory: model.safetensors alone, or the shards that
/// model.safetensors.index.json names.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/safetensors.h"
#include "model/weights.h"

namespace slime::model {

class ModelFiles final {
 public:
  /// Opens them and checks every header. Throws ConfigError with all problems: missing or damaged
  /// files, a tensor in two shards, a tensor that the index puts elsewhere.
  explicit ModelFiles(const std::filesystem::path& directory);

  struct TensorLocation {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  /// All tensors by name.
  const std::map<std::string, TensorLocation>& tensors() const { return tensors_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }

  /// Fills weights.flat() from the files. Every tensor must be there with its full shape, and no
  /// other; `may_be_surplus` decides which extra names are harmless. Throws ConfigError with all
  /// problems.
  void read_into(Weights& weights, bool (*may_be_surplus)(const std::string& name)) const;

 private:
  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorLocation> tensors_;
};

}  // namespace slime::model
