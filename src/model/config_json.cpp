#include "model/config_json.h"

#include <fmt/format.h>

#include "core/error.h"
#include "model/families/family.h"

namespace slime::model {

json::object config_json(const ModelConfig& config) {
  if (!config.raw.empty()) return config.raw;
  const Family* family = find_family(config.model_type);
  if (family == nullptr) {
    throw ConfigError(fmt::format("model_type \"{}\" is not known; supported here: {}",
                                  config.model_type, family_names()));
  }
  json::object object;
  object["architectures"] = json::array{json::string(family->architecture)};
  object["model_type"] = config.model_type;
  write_common(config, object);
  family->write(config, object);

  ModelConfig again = parse_model_config(object, "config.json");
  again.raw.clear();
  // Not from the file.
  again.drafts.computed = config.drafts.computed;
  again.drafts.has_experts_one_by_one = config.drafts.has_experts_one_by_one;
  if (again != config) {
    throw ConfigError(fmt::format(
        "a configuration made in code is none that model_type \"{}\" can have: config.json would "
        "mean another model",
        config.model_type));
  }
  return object;
}

}  // namespace slime::model
