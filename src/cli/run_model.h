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

/// Whether a folder is a run's: one with run.json and no COMMITTED.
bool is_run_directory(const std::filesystem::path& folder);
/// 120 of "iter_0000120", a checkpoint's folder; -1: another name.
int64_t step_of_checkpoint(const std::filesystem::path& checkpoint);

/// Nothing for a word that names no run directory. Throws ConfigError for
/// a run without a checkpoint, or without that one: with those that there are.
std::optional<RunModel> run_model(const std::string& word);

/// The model that a word names: a run, a directory, a name of the hub. Throws ConfigError, for a folder of models or
/// runs with those that are in it.
ModelPlace model_of_word(const std::string& word, const std::string& whose);

}  // namespace slime::cli
