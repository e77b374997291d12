#pragma once

/// Writer of config.json: a model configuration as JSON, for checkpoints.

#include "core/json.h"
#include "model/config.h"

namespace slime::model {

/// What was read (config.raw). Of a configuration made in code: the fields of its family, in the
/// hub's form and in the newer one, such that reading them gives the same configuration. Throws
/// ConfigError when the family has no words for it (a Qwen2 without biases, say).
json::object config_json(const ModelConfig& config);

}  // namespace slime::model
