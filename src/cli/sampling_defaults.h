#pragma once

/// --sampling-defaults: what a request is sampled with where it is silent. SGLang's flag, and its
/// default.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "engine/client.h"
#include "engine/http/served_model.h"

namespace slime::cli {

inline void add_sampling_defaults(CLI::App& app, std::string& from) {
  app.add_option("--sampling-defaults", from,
                 "model: generation_config.json fills what a request leaves out; openai: SGLang's "
                 "constants do")
      ->capture_default_str()
      ->check(CLI::IsMember({"model", "openai"}));
}

/// Throws ConfigError when generation_config.json is malformed or out of range.
inline engine::SamplingParams sampling_defaults_by(const std::string& from,
                                                   const std::filesystem::path& directory) {
  return from == "model" ? engine::sampling_defaults_of(directory) : engine::SamplingParams{};
}

}  // namespace slime::cli
