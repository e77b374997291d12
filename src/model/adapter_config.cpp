#include "model/adapter_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>

#include "core/error.h"
#include "core/expression.h"
#include "core/field_reader.h"
#include "model/network.h"

namespace slime::model {
namespace fs = std::filesystem;
namespace {

using ModuleKind = AdapterModule::Kind;

bool ends_behind_dot(const std::string& name, const std::string& end) {
  return name == end || name.ends_with("." + end);
}

/// Expressions and their values, of a file that anybody may have written.
constexpr std::size_t kMostPatterns = 1024;

template <typename T>
std::vector<std::pair<Expression, T>> compiled(const std::vector<std::pair<std::string, T>>& table,
                                               const char* what) {
  if (table.size() > kMostPatterns)
    throw ConfigError(
        fmt::format("{}: has {} expressions, at most {}", what, table.size(), kMostPatterns));
  std::vector<std::pair<Expression, T>> expressions;
  for (const auto& [key, value] : table)
    expressions.emplace_back(Expression("(?:.*\\.)?(?:" + key + ")", what), value);
  return expressions;
}

template <typename T>
T pattern_value(const std::vector<std::pair<Expression, T>>& table, T otherwise,
                const std::string& module) {
  for (const auto& [expression, value] : table)
    if (expression.is_whole(module)) return value;
  return otherwise;
}

std::optional<Expression> compiled(const std::string& text, const char* what) {
  return text.empty() ? std::nullopt : std::optional<Expression>(std::in_place, text, what);
}

/// The index of a layer in a name is the first number behind a dot, or the one behind a pattern.
std::vector<Expression> compiled_layers(const std::vector<std::string>& patterns) {
  std::vector<Expression> expressions;
  if (patterns.size() > kMostPatterns)
    throw ConfigError(fmt::format("layers_pattern: has {} expressions, at most {}", patterns.size(),
                                  kMostPatterns));
  for (const std::string& pattern : patterns)
    expressions.emplace_back(".*\\." + pattern + "\\.(\\d+)\\..*", "layers_pattern");
  if (patterns.empty()) expressions.emplace_back(R"(.*?\.[^.]*\.(\d+)\..*)", "layers_pattern");
  return expressions;
}

bool is_all_linear(const std::vector<std::string>& targets) {
  return targets.size() == 1 && targets.front() == "all-linear";
}

std::string without_weight(const std::string& name) {
  constexpr std::string_view kTail = ".weight";
  return name.ends_with(kTail) ? name.substr(0, name.size() - kTail.size()) : name;
}

/// A string, or a list of them.
void read_words(const FieldReader& fields, const char* name, std::vector<std::string>& list,
                std::string& text) {
  const json::value* value = fields.find(name);
  if (value == nullptr) return;
  if (value->is_string()) {
    text = *fields.text(name);
  } else {
    list = fields.strings(name);
  }
}

template <typename T>
std::vector<std::pair<std::string, T>> read_pattern(const FieldReader& fields, const char* name) {
  std::vector<std::pair<std::string, T>> table;
  const json::object* object = fields.object(name);
  if (object == nullptr) return table;
  const FieldReader inside = fields.inside(*object, name);
  for (const auto& [key, value] : *object) {
    const std::string word(key);
    if constexpr (std::is_same_v<T, int64_t>) {
      if (const auto number = inside.integer(word, 1)) table.emplace_back(word, *number);
    } else {
      if (const auto number = inside.number(word)) table.emplace_back(word, *number);
    }
  }
  return table;
}

/// Draft layers have no adapters: the same ones fit an engine that computes them and a trainer that does not.
std::unique_ptr<Network> adapted_shape(ModelConfig config) {
  config.drafts.computed = 0;
  return make_blank_network(config, {.device = at::kMeta});
}

}  // namespace

struct AdapterRules::Compiled {
  std::optional<Expression> target, exclude;
  std::vector<Expression> layers;
  std::vector<std::pair<Expression, int64_t>> ranks;
  std::vector<std::pair<Expression, double>> alphas;
};

AdapterRules::AdapterRules(const AdapterConfig& config)
    : config_(config),
      compiled_(std::make_unique<Compiled>(
          Compiled{.target = compiled(config.target_expression, "target_modules"),
                   .exclude = compiled(config.exclude_expression, "exclude_modules"),
                   .layers = compiled_layers(config.layers_pattern),
                   .ranks = compiled(config.rank_pattern, "rank_pattern"),
                   .alphas = compiled(config.alpha_pattern, "alpha_pattern")})) {}

AdapterRules::~AdapterRules() = default;

bool AdapterRules::is_hit(const AdapterModule& module) const {
  const std::string& name = module.name;
  const auto among = [&](const std::vector<std::string>& ends) {
    return std::ranges::any_of(ends,
                               [&](const std::string& end) { return ends_behind_dot(name, end); });
  };
  if (among(config_.exclude)) return false;
  if (compiled_->exclude && compiled_->exclude->is_whole(name)) return false;
  if (among(config_.target_parameters)) return true;
  if (compiled_->target)
    return module.kind != ModuleKind::kExperts && compiled_->target->is_whole(name);
  const bool is_target = is_all_linear(config_.targets)
                             ? module.is_linear
                             : module.kind != ModuleKind::kExperts && among(config_.targets);
  if (!is_target || config_.layers.empty()) return is_target;
  for (const Expression& layer : compiled_->layers) {
    const std::string index = layer.first_group(name);
    if (index.empty()) continue;
    if (index.find_first_not_of("0123456789") != std::string::npos)
      throw ConfigError("layers_pattern: an expression should have no group of its own");
    return std::ranges::find(config_.layers, std::stoll(index)) != config_.layers.end();
  }
  return false;
}

int64_t AdapterRules::rank_of(const std::string& module) const {
  return pattern_value(compiled_->ranks, config_.rank, module);
}

double AdapterRules::scale_of(const std::string& module, int64_t of_rank) const {
  const double own = pattern_value(compiled_->alphas, config_.alpha, module);
  const auto divisor = static_cast<double>(of_rank);
  return own / (config_.uses_rslora ? std::sqrt(divisor) : divisor);
}

AdapterConfig read_adapter_config(const fs::path& directory) {
  const fs::path path = directory / "adapter_config.json";
  if (!fs::exists(path))
    throw ConfigError(
        fmt::format("{} has no adapter_config.json: it is no adapter of PEFT", directory.string()));
  const json::value value = read_json_file(path);
  if (!value.is_object()) throw ConfigError(path.string() + ": must hold a JSON object");
  std::vector<std::string> problems;
  const FieldReader fields(value.as_object(), path.string() + ": ", problems);
  AdapterConfig config;
  if (const auto type = fields.text("peft_type"); type && *type != "LORA")
    fields.wrong("peft_type", "is LORA where adapters are low-rank pairs");
  config.rank = fields.integer("r", 1, 1 << 16).value_or(config.rank);
  config.alpha = fields.number("lora_alpha").value_or(config.alpha);
  config.uses_rslora = fields.boolean("use_rslora").value_or(false);
  config.dropout = fields.number("lora_dropout", 0, 1).value_or(0);
  std::string all;
  read_words(fields, "target_modules", config.targets, all);
  if (all == "all-linear") {
    config.targets = {all};
  } else {
    config.target_expression = all;
  }
  read_words(fields, "exclude_modules", config.exclude, config.exclude_expression);
  if (const json::value* layers = fields.find("layers_to_transform")) {
    if (layers->is_array()) {
      config.layers = fields.numbers<int64_t>("layers_to_transform");
    } else if (const auto one = fields.integer("layers_to_transform", 0)) {
      config.layers = {*one};
    }
  }
  std::string pattern;
  read_words(fields, "layers_pattern", config.layers_pattern, pattern);
  if (!pattern.empty()) config.layers_pattern = {pattern};
  config.rank_pattern = read_pattern<int64_t>(fields, "rank_pattern");
  config.alpha_pattern = read_pattern<double>(fields, "alpha_pattern");
  config.saved = fields.strings("modules_to_save");
  config.target_parameters = fields.strings("target_parameters");
  config.base_model = fields.text("base_model_name_or_path").value_or("");
  fields.refuse("use_dora", "is not supported: magnitudes of rows change with every update");
  if (const auto bias = fields.text("bias"); bias && *bias != "none")
    fields.wrong("bias", "is none: biases are not trained beside adapters");
  for (const char* name : {"lora_bias", "fan_in_fan_out", "use_qalora", "alora_invocation_tokens",
                           "trainable_token_indices", "layer_replication"})
    fields.refuse(name, "is not supported");
  if (!problems.empty()) throw ConfigError(problems);
  return config;
}

json::object to_json(const AdapterConfig& config) {
  const auto list = [](const std::vector<std::string>& words) { return json::value_from(words); };
  const auto pattern = [](const auto& table) {
    json::object object;
    for (const auto& [key, value] : table) object[key] = value;
    return object;
  };
  json::object out;
  out["peft_type"] = "LORA";
  out["task_type"] = "CAUSAL_LM";
  out["base_model_name_or_path"] = config.base_model;
  out["r"] = config.rank;
  // Whole numbers as PEFT's readers expect them.
  if (config.alpha == std::floor(config.alpha)) {
    out["lora_alpha"] = static_cast<int64_t>(config.alpha);
  } else {
    out["lora_alpha"] = config.alpha;
  }
  out["use_rslora"] = config.uses_rslora;
  out["lora_dropout"] = config.dropout;
  out["bias"] = "none";
  out["fan_in_fan_out"] = false;
  out["use_dora"] = false;
  out["inference_mode"] = true;
  out["init_lora_weights"] = true;
  if (!config.target_expression.empty()) {
    out["target_modules"] = config.target_expression;
  } else {
    out["target_modules"] = list(config.targets);
  }
  if (!config.exclude.empty()) out["exclude_modules"] = list(config.exclude);
  if (!config.exclude_expression.empty()) out["exclude_modules"] = config.exclude_expression;
  if (!config.layers.empty()) out["layers_to_transform"] = json::value_from(config.layers);
  if (!config.layers_pattern.empty()) out["layers_pattern"] = list(config.layers_pattern);
  out["rank_pattern"] = pattern(config.rank_pattern);
  out["alpha_pattern"] = pattern(config.alpha_pattern);
  if (!config.saved.empty()) out["modules_to_save"] = list(config.saved);
  if (!config.target_parameters.empty()) out["target_parameters"] = list(config.target_parameters);
  return out;
}

std::vector<AdapterModule> modules_of(const ModelConfig& config) {
  const std::unique_ptr<Network> network = adapted_shape(config);
  const Weights& weights = network->weights();
  const ExpertNames& names = config.experts.names;
  static const std::regex kExpert(R"((.*\.experts)\.(\d+)\.([^.]+))");
  std::vector<AdapterModule> modules;
  for (const Weights::Parameter& parameter : weights.parameters()) {
    if (parameter.is_tied) {
      modules.push_back({"lm_head", ModuleKind::kHead});
      continue;
    }
    for (size_t i = parameter.first; i < parameter.end; ++i) {
      const std::string name = without_weight(weights.tensors()[i].name);
      if (parameter.vector != nullptr) {
        if (name.ends_with("embed_tokens")) modules.push_back({name, ModuleKind::kEmbedding});
        continue;
      }
      std::smatch found;
      if (name == "lm_head") {
        modules.push_back({name, ModuleKind::kHead});
      } else if (name.ends_with("." + names.prefix + "." + names.router) ||
                 name.ends_with("." + names.shared + "_gate") ||
                 name.find(".indexer.") != std::string::npos) {
        modules.push_back({name, ModuleKind::kRouter});
      } else if (weights.tensors()[i].full_shape.size() == 3) {
        modules.push_back({name, ModuleKind::kExperts, true});
      } else if (std::regex_match(name, found, kExpert)) {
        modules.push_back({name, ModuleKind::kExpert, true});
        if (std::stoll(found[2]) != 0) continue;
        if (found[3] == names.gate)
          modules.push_back({found[1].str() + ".gate_up_proj", ModuleKind::kExperts});
        if (found[3] == names.down)
          modules.push_back({found[1].str() + ".down_proj", ModuleKind::kExperts});
      } else {
        modules.push_back({name, ModuleKind::kMatrix, true});
      }
    }
  }
  return modules;
}

const AdapterForm::Pair* AdapterForm::find(const std::string& module) const {
  const auto found = std::ranges::find(pairs, module, &Pair::module);
  return found == pairs.end() ? nullptr : &*found;
}

bool AdapterForm::saves(const std::string& tensor) const {
  return std::ranges::find(saved, tensor) != saved.end();
}

AdapterForm form_of(const AdapterConfig& config, const ModelConfig& model) {
  AdapterForm form;
  form.config = config;
  const std::unique_ptr<Network> network = adapted_shape(model);
  std::vector<bool> hits_something(config.saved.size());
  for (const NamedWeight& weight : network->weights().tensors()) {
    const std::string module = weight.name.substr(0, weight.name.rfind('.'));
    for (size_t i = 0; i < config.saved.size(); ++i) {
      if (!module.ends_with(config.saved[i])) continue;
      hits_something[i] = true;
      if (!form.saves(weight.name)) form.saved.push_back(weight.name);
    }
  }
  const bool saves_tied_head =
      model.ties_embeddings && std::ranges::find(config.saved, "lm_head") != config.saved.end();
  if (saves_tied_head) {
    form.saved.emplace_back("lm_head.weight");
    hits_something[static_cast<size_t>(std::ranges::find(config.saved, "lm_head") -
                                       config.saved.begin())] = true;
  }
  std::vector<std::string> problems;
  for (size_t i = 0; i < config.saved.size(); ++i) {
    if (!hits_something[i])
      problems.push_back(
          fmt::format("modules_to_save: no module's name ends with \"{}\"", config.saved[i]));
  }
  const std::vector<AdapterModule> modules = modules_of(model);
  const AdapterRules rules(config);
  for (const AdapterModule& module : modules) {
    if (!rules.is_hit(module) || form.saves(module.name + ".weight")) continue;
    const int64_t rank = rules.rank_of(module.name);
    form.pairs.push_back({module.name, rank, rules.scale_of(module.name, rank)});
  }
  // Each word has to hit something: one that is misspelt would train less than was asked for.
  if (config.target_expression.empty() && !is_all_linear(config.targets)) {
    for (const std::string& target : config.targets) {
      if (std::ranges::none_of(modules, [&](const AdapterModule& module) {
            return ends_behind_dot(module.name, target);
          }))
        problems.push_back(fmt::format("target_modules: no module of the model is \"{}\"", target));
    }
  }
  if (problems.empty() && form.pairs.empty() && form.saved.empty())
    problems.emplace_back("the targets of adapters hit no module of the model");
  if (!problems.empty()) throw ConfigError(problems);
  return form;
}

}  // namespace slime::model
