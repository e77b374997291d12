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
#include <set>
#include <string>
#include <vector>

#include "model/adapter_config.h"
#include "model/adapters.h"
#include "model/safetensors.h"
#include "model/staged_reader.h"

namespace slime::model {

/// Names of what adapters of a model may be for.
struct AdapterNames {
  explicit AdapterNames(const ModelConfig& model);

  std::set<std::string> modules, tensors;
};

class AdapterFile final {
 public:
  /// Of a model. Throws ConfigError with all problems: what is no adapter's, what misses its other half.
  AdapterFile(const std::filesystem::path& directory, const ModelConfig& model);
  /// The same of a model whose names are known from before.
  AdapterFile(const std::filesystem::path& directory, const ModelConfig& model,
              const AdapterNames& names);

  const AdapterForm& form() const { return form_; }

  /// The slices of the tensors of this form. Throws ConfigError for shapes that do not fit.
  void read_into(AdapterTensors& tensors) const;
  /// The same of tensors on the reader's device.
  void read_into(AdapterTensors& tensors, StagedReader& reader) const;

 private:
  enum class Form { kAsItIs, kExpertsBefore, kExpertsBehind };
  struct Entry {
    std::string stored;
    Form form = Form::kAsItIs;
  };
  void read_names(const ModelConfig& model, const AdapterNames& names);
  /// As it is stored, under the shape that it has here: of kExpertsBehind after its dimensions were turned.
  StoredTensor shaped(const Entry& entry, const NamedWeight& weight) const;
  Tensor whole(const Entry& entry, const NamedWeight& weight) const;
  /// Why this tensor cannot be read, which is seen before reading; empty: it can.
  std::string problem_of(const NamedWeight& weight) const;
  std::string not_finite(const NamedWeight& weight) const;

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
