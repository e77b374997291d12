#pragma once

/// The adapters of a run, from its flags: what they are for, and with which numbers they begin.

#include <string>

#include "comm/mesh.h"
#include "config/run_config.h"
#include "model/adapter_config.h"
#include "model/network.h"

namespace slime::roles {

/// As the flags say it: of --lora-adapter-path what its directory says. Throws ConfigError for what fits no
/// module of the model.
model::AdapterForm adapter_form(const config::RunConfig& config, const model::ModelConfig& model);

/// Checkpoint directory of the base model that the adapters of the run modify.
std::string base_directory(const config::RunConfig& config);

/// Adapters beside the weights of `network`, where the run trains such: the numbers of `directory`, a
/// checkpoint or a directory of PEFT, or else those of --lora-adapter-path, or fresh ones.
void add_run_adapters(const config::RunConfig& config, model::Network& network,
                      const std::string& directory, const comm::Mesh& mesh = comm::Mesh::single());

}  // namespace slime::roles
