#pragma once

/// Adapters as PEFT keeps them: a directory with adapter_config.json and adapter_model.safetensors.
///
/// Names and shapes of tensors say what an adapter is, not the lists of the configuration, which libraries
/// rewrite; scales come from alpha and its patterns. Every tensor is used, or refused with its name.
///
///   of files                                    here
///   [E R, I]  experts[.base_layer].lora_A       [E, R, I]  experts.gate_up_proj (or down_proj).lora_A
///   [O, R E]  experts[.base_layer].lora_B       [E, O, R]

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/adapter_config.h"
#include "model/adapters.h"
#include "model/safetensors.h"

namespace slime::model {

class AdapterFile final {
 public:
  /// Of a model. Throws ConfigError with all problems: what is no adapter's, what misses its other half.
  AdapterFile(const std::filesystem::path& directory, const ModelConfig& model);

  const AdapterForm& form() const { return form_; }

  /// The slices of the tensors of this form. Throws ConfigError for shapes that do not fit.
  void read_into(AdapterTensors& tensors) const;

 private:
  enum class Form { kAsItIs, kExpertsBefore, kExpertsBehind };
  struct Entry {
    std::string stored;
    Form form = Form::kAsItIs;
  };
  void read_names(const ModelConfig& model);
  Tensor whole(const Entry& entry, int64_t experts) const;

  SafetensorsFile file_;
  AdapterForm form_;
  std::map<std::string, Entry> entries_;  // by the names of AdapterTensors
};

/// Whether the directory has an adapter.
bool has_adapter(const std::filesystem::path& directory);

/// Writes DIRECTORY/adapter_config.json and the tensors: whole ones, under the names of AdapterTensors.
void write_adapter(const std::filesystem::path& directory, const AdapterForm& form,
                   const std::vector<TensorToWrite>& tensors);

/// The same of an adapter that is whole here.
void write_adapter(const std::filesystem::path& directory, const AdapterTensors& tensors);

/// One adapter in the network's only slot, from a directory.
void load_adapters(Network& network, const std::filesystem::path& directory,
                   const comm::Mesh& mesh = comm::Mesh::single());

}  // namespace slime::model
