#pragma once

/// Options of `slime eval`: flags of a run that decide what an evaluation gives, by the table of flags, and short names.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace slime::cli {

struct EvalOptions {
  std::string model;
  std::vector<std::string> data;     // NAME=FILE
  std::vector<std::string> words;    // of `slime train`, in the order in which they were given
  std::vector<std::string> compare;  // two result files
  std::string output;
  bool as_json = false;
};

void add_eval_options(CLI::App& app, EvalOptions& options);

/// The command line of a run whose evaluation this is. `model`: its directory. Throws ConfigError for data without
/// a name, and for a name that is given twice.
std::vector<std::string> train_words(const EvalOptions& options, const std::string& model);

}  // namespace slime::cli
