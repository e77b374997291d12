#include "roles/run_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "model/adapter_files.h"
#include "model/adapters.h"
#include "setup/named_model.h"

namespace slime::roles {
namespace {

/// "EXPRESSION=NUMBER" of a flag.
template <typename T>
std::vector<std::pair<std::string, T>> pattern_of(const std::vector<std::string>& words,
                                                  const char* flag) {
  std::vector<std::pair<std::string, T>> table;
  for (const std::string& word : words) {
    const std::size_t equals = word.rfind('=');
    T value{};
    const char* end = word.data() + word.size();
    const bool is_there = equals != std::string::npos && equals > 0;
    if (!is_there || std::from_chars(word.data() + equals + 1, end, value).ptr != end ||
        value <= 0) {
      throw ConfigError(fmt::format(
          "{} {}: is EXPRESSION=NUMBER with a number above 0, such as layers\\.0\\..*=4", flag,
          word));
    }
    table.emplace_back(word.substr(0, equals), value);
  }
  return table;
}

/// One word that is no name: an expression for whole names.
bool is_expression(const std::vector<std::string>& words) {
  return words.size() == 1 && words.front().find_first_of("*+?()[]|\\^$") != std::string::npos;
}

/// "q_proj,v_proj" is two names.
std::vector<std::string> names_of(const std::vector<std::string>& words) {
  if (is_expression(words)) return words;
  std::vector<std::string> names;
  for (const std::string& word : words) {
    for (std::size_t begin = 0; begin <= word.size();) {
      const std::size_t end = std::min(word.find(',', begin), word.size());
      if (end > begin) names.push_back(word.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

model::AdapterConfig adapter_config(const config::RunConfig& config) {
  model::AdapterConfig out;
  out.rank = config.lora_rank;
  out.alpha = config.lora_alpha;
  out.uses_rslora = config.use_rslora;
  out.dropout = config.lora_dropout;
  const std::vector<std::string> targets = names_of(config.target_modules);
  if (is_expression(targets)) {
    out.target_expression = targets.front();
  } else {
    out.targets = targets;
  }
  const std::vector<std::string> exclude = names_of(config.exclude_modules);
  if (is_expression(exclude)) {
    out.exclude_expression = exclude.front();
  } else {
    out.exclude = exclude;
  }
  out.layers = config.lora_layers;
  out.rank_pattern = pattern_of<int64_t>(config.lora_rank_pattern, "--lora-rank-pattern");
  out.alpha_pattern = pattern_of<double>(config.lora_alpha_pattern, "--lora-alpha-pattern");
  out.saved = config.lora_modules_to_save;
  if (config.lora_init == "gaussian") out.init = model::AdapterInit::kGaussian;
  if (config.lora_init == "xavier") out.init = model::AdapterInit::kXavier;
  out.base_model = config.hf_checkpoint;
  return out;
}

/// A checkpoint is gone on with as it is: flags that mean another adapter are refused.
void check_same_form(const model::AdapterForm& stored, const model::AdapterForm& asked,
                     const std::string& directory) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format(
        "{}: {}; give the --lora-... and --target-modules flags that the run began with", directory,
        what));
  };
  for (const auto& pair : asked.pairs) {
    const auto* own = stored.find(pair.module);
    if (own == nullptr) refuse(fmt::format("has no adapter for {}", pair.module));
    if (own->rank != pair.rank)
      refuse(fmt::format("{} has rank {}, the flags say {}", pair.module, own->rank, pair.rank));
    if (std::abs(own->scale - pair.scale) > 1e-9 * std::abs(pair.scale))
      refuse(fmt::format("{} has scale {}, the flags say {}", pair.module, own->scale, pair.scale));
  }
  if (stored.pairs.size() != asked.pairs.size() || stored.saved.size() != asked.saved.size())
    refuse("has adapters or whole modules that the flags leave out");
}

/// Products of experts drop nothing.
void check_dropout(const config::RunConfig& config, const model::AdapterForm& form) {
  if (config.lora_dropout == 0) return;
  for (const auto& pair : form.pairs) {
    if (pair.module.find(".experts") == std::string::npos) continue;
    throw ConfigError(fmt::format(
        "--lora-dropout {}: not with adapters of experts ({}), whose products drop nothing; leave "
        "it out, or take other --target-modules",
        config.lora_dropout, pair.module));
  }
}

}  // namespace

model::AdapterForm adapter_form(const config::RunConfig& config, const model::ModelConfig& model) {
  model::AdapterForm form = config.lora_adapter_path.empty()
                                ? model::form_of(adapter_config(config), model)
                                : model::AdapterFile(config.lora_adapter_path.get(), model).form();
  if (!config.is_on_gpus() || config.adapter_name.empty()) return form;
  try {
    model::check_rows_choose_on_gpu(form);
  } catch (const ConfigError& error) {
    throw ConfigError(
        fmt::format("{} (--target-modules, --exclude-modules, --device cpu)", error.what()));
  }
  return form;
}

std::string base_directory(const config::RunConfig& config) {
  if (setup::is_model_directory(config.load)) return config.load;
  return setup::beginning_directory(config, [](const std::string&) {});
}

void add_run_adapters(const config::RunConfig& config, model::Network& network,
                      const std::string& directory, const comm::Mesh& mesh) {
  if (!config.trains_adapters()) return;
  const std::string from = directory.empty() ? config.lora_adapter_path.get() : directory;
  if (!from.empty()) {
    model::load_adapters(network, from, mesh);
    if (config.lora_rank > 0)
      check_same_form(network.adapters()->at(0)->form(), adapter_form(config, network.config()),
                      from);
  } else {
    const model::AdapterForm form = adapter_form(config, network.config());
    model::add_adapters(network, form, mesh);
    network.adapters()->at(0)->begin(form.config.init, static_cast<uint64_t>(config.seed));
  }
  check_dropout(config, network.adapters()->at(0)->form());
  network.adapters()->set_dropout(config.lora_dropout, static_cast<uint64_t>(config.seed));
}

}  // namespace slime::roles
