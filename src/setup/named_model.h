#pragma once

/// Weights that a path of --load or --ref-load names: a model directory, the newest whole checkpoint
/// of a folder, or nothing that this program reads.

#include <string>

#include "config/run_config.h"
#include "train/checkpoint.h"

namespace slime::setup {

struct NamedModel {
  std::string directory;  // config.json and weights; empty: none
  std::string why_not;    // what is there instead, for people
};

/// `path` is not empty. `warn` gets what find_checkpoint has to say. `made_from`: a model directory of the
/// same shape, for the command that converts another trainer's checkpoint.
NamedModel named_model(const std::string& path, const train::Warn& warn,
                       const std::string& made_from = "MODEL");

/// Whether a path is a model directory of a family that this program has.
bool is_model_directory(const std::string& path);

/// The weights of the reference: --ref-load, or else --hf-checkpoint. Throws ConfigError for a
/// --ref-load without a model.
std::string reference_directory(const config::RunConfig& config, const train::Warn& warn);

/// The weights that the actor begins with where no checkpoint is loaded: --ref-load where it names a
/// model, as in the original, or else --hf-checkpoint. `warn` says which of two.
std::string beginning_directory(const config::RunConfig& config, const train::Warn& warn);

}  // namespace slime::setup
