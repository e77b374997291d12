#pragma once

/// Configuration of adapters: which modules of a model they are for, of which rank and scale. The fields of
/// PEFT's adapter_config.json, with their rules.
///
/// A module is a tensor's name without ".weight": "model.layers.0.self_attn.q_proj".

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "model/config.h"

namespace slime::model {

/// How A begins; B is zero (of an embedding A is).
enum class AdapterInit { kKaiming, kGaussian, kXavier };

struct AdapterConfig {
  int64_t rank = 8;
  double alpha = 8;
  bool uses_rslora = false;  // the scale is alpha / sqrt(rank), else alpha / rank
  double dropout = 0;
  AdapterInit init = AdapterInit::kKaiming;
  /// Names or ends of names behind a dot; "all-linear" alone: all matrices but routers and the output layer.
  std::vector<std::string> targets;
  std::string target_expression;  // or an expression for the whole name; empty: `targets`
  std::vector<std::string> exclude;
  std::string exclude_expression;
  std::vector<int64_t> layers;  // of `targets`; empty: all
  std::vector<std::string> layers_pattern;
  /// The first expression that meets the end of a name decides, behind a dot or at its beginning.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> saved;              // ends of names
  std::vector<std::string> target_parameters;  // of experts that are one tensor
  std::string base_model;
};

/// Reads DIRECTORY/adapter_config.json. Throws ConfigError with the names of fields that ask for what there
/// is not (DoRA, biases, ...).
AdapterConfig read_adapter_config(const std::filesystem::path& directory);

/// As PEFT writes it.
json::object to_json(const AdapterConfig& config);

/// What a network has that adapters can be for.
struct AdapterModule {
  enum class Kind {
    kMatrix,
    kExpert,   // of one expert: "...experts.7.up_proj"
    kExperts,  // of all experts of a layer: "...experts.gate_up_proj"
    kRouter,   // and the gate of a shared expert
    kHead,
    kEmbedding
  };
  std::string name;
  Kind kind = Kind::kMatrix;
  /// "all-linear" means it: not where an equal one of each expert is meant.
  bool is_linear = false;
};
std::vector<AdapterModule> modules_of(const ModelConfig& config);

/// Which modules a configuration is for, of which rank and scale: its expressions, compiled once.
class AdapterRules final {
 public:
  /// `config` outlives the object. Throws ConfigError for what is no expression, as do all functions for one that takes
  /// too many steps (core/expression.h).
  explicit AdapterRules(const AdapterConfig& config);
  ~AdapterRules();
  AdapterRules(const AdapterRules&) = delete;
  AdapterRules& operator=(const AdapterRules&) = delete;

  bool is_hit(const AdapterModule& module) const;
  int64_t rank_of(const std::string& module) const;
  /// Of a pair that has this rank.
  double scale_of(const std::string& module, int64_t rank) const;

 private:
  struct Compiled;
  const AdapterConfig& config_;
  std::unique_ptr<Compiled> compiled_;
};

/// Pairs to be made: of each module its rank and scale; and tensors that are trained whole.
struct AdapterForm {
  struct Pair {
    std::string module;
    int64_t rank = 0;
    double scale = 0;
  };
  AdapterConfig config;  // as files say it
  std::vector<Pair> pairs;
  std::vector<std::string> saved;  // names of tensors

  const Pair* find(const std::string& module) const;
  bool saves(const std::string& tensor) const;
};

/// What the configuration means for a model. Throws ConfigError with the names that hit nothing.
AdapterForm form_of(const AdapterConfig& config, const ModelConfig& model);

}  // namespace slime::model
