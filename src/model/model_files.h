#pragma once

/// The weight files of a model directory: model.safetensors alone, or the shards that
/// model.safetensors.index.json names.

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/low_precision.h"
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

  /// What a tensor is that the network does not ask for.
  enum class Surplus { kProblem, kIgnored, kCarried };
  using SurplusOf = std::function<Surplus(const std::string& name)>;

  /// The headers alone: every tensor must be there with its full shape, and no other but what
  /// `surplus_of` says. Throws ConfigError with all problems. Returns the names of what is carried.
  std::vector<std::string> check_headers(const Weights& weights, StoredForm form, int64_t fp8_block,
                                         const SurplusOf& surplus_of) const;

  /// Fills weights.flat() and the constants from the files, and notes what is carried. Every tensor
  /// must be there with its full shape, and no other but what `surplus_of` says. Throws ConfigError
  /// with all problems.
  /// Weights that the files hold in `form` (model/low_precision.h) are read as what they mean. Matrices that
  /// the network has in `matrices` are whole (one rank): codes of files in the same blocks stay as they are,
  /// others are made of numbers, tensor by tensor.
  void read_into(Weights& weights, StoredForm form, int64_t fp8_block, const SurplusOf& surplus_of,
                 kernels::MatrixFormat matrices = kernels::MatrixFormat::kPlain) const;

 private:
  void check_tensor(const std::string& name, const std::vector<int64_t>& shape,
                    std::vector<std::string>& problems) const;
  /// Of a tensor that is there.
  const std::filesystem::path& file_of(const std::string& name) const;
  /// Whether the files hold it in `form`, and not plainly.
  bool is_low_precision(StoredForm form, const std::string& name) const;
  /// A problem where the headers of what it is made of do not mean the weight.
  void check_low_precision(const NamedWeight& weight, StoredForm form, int64_t fp8_block,
                           std::vector<std::string>& problems) const;
  Tensor read_low_precision(const NamedWeight& weight, StoredForm form, int64_t fp8_block) const;
  /// What the rank has of a weight, as plain numbers.
  void read_numbers(const NamedWeight& weight, StoredForm form, int64_t fp8_block,
                    const Tensor& out) const;
  /// Into codes and factors (Weights::stored).
  void read_codes(const NamedWeight& weight, StoredForm form, int64_t fp8_block,
                  kernels::MatrixFormat matrices, at::ScalarType trained,
                  const std::vector<Tensor>& stored) const;
  /// Into what the rank holds of the weight, expert by expert: unpacking takes many times the room.
  void read_mxfp4(const NamedWeight& weight, const Tensor& out) const;
  /// Throws ConfigError where what is unpacked is not of the weight's shape.
  void check_unpacked(const NamedWeight& weight, at::IntArrayRef shape) const;
  std::vector<CarriedTensor> opened_again(const std::vector<std::string>& names) const;

  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorLocation> tensors_;
};

}  // namespace slime::model
