#pragma once

/// The model of a run that a word of the command line names.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace slime::cli {

/// A model, or an adapter for one.
struct ModelPlace {
  std::filesystem::path directory;  // of the whole model
  std::filesystem::path adapter;    // a directory of PEFT; empty: none
};

/// A checkpoint of a run: RUN is the newest, RUN@120 that of rollout step 120.
struct RunModel {
  std::filesystem::path run;         // the run directory
  std::filesystem::path checkpoint;  // iter_0000120: a model, or an adapter for the run's model
  int64_t step = -1;
};

/// Nothing for a word that names no run directory (one with run.json and no COMMITTED). Throws ConfigError for
/// a run without a checkpoint, or without that one: with those that there are.
std::optional<RunModel> run_model(const std::string& word);

/// The model that a word names: a run, a directory, a name of the hub. Throws ConfigError.
ModelPlace model_of_word(const std::string& word, const std::string& whose);

}  // namespace slime::cli
