#pragma once

/// A complete configuration as JSON, and back: what workers of a run get. They parse no flags, read
/// no YAML files and complete nothing again, so all processes of a run have the same configuration,
/// also where a file was changed meanwhile.

#include "config/run_config.h"
#include "core/json.h"

namespace slime::config {

/// {"flags": as run.json has them, "num_engine_workers": 2, "critic": the same or null}: what is not the
/// default, and what validation found out. Secrets are hidden: no worker needs one.
json::object to_json(const RunConfig& config);
/// Throws ConfigError for JSON that is not of that form.
RunConfig run_config_from(const json::object& object);

}  // namespace slime::config
