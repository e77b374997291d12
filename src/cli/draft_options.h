#pragma once

/// Options of drafts of a server, by SGLang's names (docs/speculation.md).

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/drafts/draft_settings.h"
#include "model/config.h"

namespace slime::cli {

struct DraftOptions {
  std::string algorithm = "none";
  std::optional<int64_t> num_draft_tokens;  // the last known token among them
  std::optional<int64_t> num_steps;
  int64_t topk = 1;
  bool always = false;
  std::string model;  // directory of an EAGLE-3 draft model; empty: none, or the model itself
  int num_ranks = 1;  // of --tp-size
};

void add_draft_options(CLI::App& app, DraftOptions& options);

/// Settings, by the options, of an engine of this model on this device. Where nothing is drafted, a line of `who`
/// ("slime serve") on standard error says why: what drafts change is time alone. Throws ConfigError for
/// counts that contradict each other. With DraftSettings::layer the network is to be loaded with
/// model::DraftLayers::kComputed, with DraftSettings::model the directory with model::load_eagle3().
engine::DraftSettings draft_settings_of(const DraftOptions& options, const std::string& device,
                                        const model::ModelConfig& model, const std::string& who);

}  // namespace slime::cli
