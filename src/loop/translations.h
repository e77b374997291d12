#pragma once

/// Every translation of a run's flags into the configurations of its stations, made before its first
/// token, by a run and by --dry-run alike.
///
/// The values are thrown away; what they were made of is recorded (config/flag.h), so that a flag
/// that no translation reads is known before anything is loaded. A station that reads a flag where it
/// stands, deep in the run, says so in the flag's row (`FlagRow::when`).

#include <memory>

#include "config/run_config.h"
#include "model/config.h"

namespace slime::loop {

/// `config` is complete and valid. `model`: of --hf-checkpoint, where it is known; without it, flags
/// that only some models ask for are read. Throws ConfigError for what a translation refuses: a schedule of
/// learning rates that cannot be, a layout, a data set of evaluation.
void make_translations(const config::RunConfig& config, const model::ModelConfig* model = nullptr);

/// What a run on several hosts asks for, besides what any run does.
void read_flags_of_hosts(const config::RunConfig& config);

/// The configuration of --hf-checkpoint; null where it is not here, or cannot be read, which the run
/// says where it needs it.
std::unique_ptr<model::ModelConfig> model_if_here(const config::RunConfig& config);

}  // namespace slime::loop
