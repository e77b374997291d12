#pragma once

/// Settings of a run that goes on that differ from those its checkpoint was written with: what is
/// told of them, and which of them make it another experiment.

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/json.h"

namespace slime::loop {

struct ChangedSetting {
  std::string flag;
  /// "1e-06 (default)" or "not given" where it was not given.
  std::string before, now;
  /// What the difference does, where that is not plain.
  std::string effect;
  /// The rest of the run would be of another model, reward or objective than its beginning.
  bool is_other_experiment = false;
};

/// What a checkpoint keeps of the settings of its run: its flags, without secrets, and what tells
/// the model of --hf-checkpoint from others.
json::object settings_of(const config::RunConfig& config);

/// Of two of settings_of(), in the order of the flags' names, without flags that say where things
/// lie or how they are shown. Empty where `before` is of a program that did not write settings.
std::vector<ChangedSetting> changed_settings(const json::object& before, const json::object& now);

/// A table for people: a title, and a line for each. `where`: what was written with other settings.
std::vector<std::string> table_of(const std::vector<ChangedSetting>& changes,
                                  const std::string& where);

/// Throws ConfigError when one of them makes it another experiment, unless the flags allow that.
void check_experiment(const std::vector<ChangedSetting>& changes, const config::RunConfig& config,
                      const std::string& where);

/// LeavesOut (train/run_parts.h): of other sets of frozen weights.
uint32_t left_out_by(const std::vector<ChangedSetting>& changes);

/// A digest of a model directory that stays when the folder is moved: of its configuration, its
/// tokenizer, and of names, sizes, beginnings and ends of its weight files.
std::string model_digest(const std::string& directory);

}  // namespace slime::loop
