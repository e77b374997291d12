#include "cli/dry_run.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "buffer/sliced_path.h"
#include "config/eval_config.h"
#include "config/unread_flags.h"
#include "config/validate.h"
#include "core/error.h"
#include "loop/run_devices.h"
#include "loop/run_start.h"
#include "loop/scores.h"
#include "loop/translations.h"
#include "model/config.h"

namespace slime::cli {
namespace {

using Sentences = std::vector<std::string>;

void add_lines(Sentences& sentences, const char* text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) sentences.push_back(line);
}

void note_data(const config::RunConfig& config, Sentences& absent) {
  std::set<std::string> seen;
  const auto look_at = [&](std::string_view flag, const std::string& path) {
    if (std::filesystem::exists(buffer::parse_sliced_path(path).path)) return;
    if (seen.insert(path).second) absent.push_back(fmt::format("{} {}: no such file", flag, path));
  };
  for (const std::string& path : config.prompt_data) look_at("--prompt-data", path);
  const bool has_config = !config.eval_config.empty();
  if (config.eval_prompt_data.empty() && !has_config) return;
  if (has_config && !std::filesystem::exists(config.eval_config)) return;  // noted already
  for (const config::EvalSetConfig& set : config::eval_sets_of(config))
    look_at(has_config ? "--eval-config" : "--eval-prompt-data", set.path);
}

/// The family and the shape of the model, where its config.json is there.
void check_model(const config::RunConfig& config, Sentences& problems) {
  const std::filesystem::path directory = config.hf_checkpoint;
  if (config.hf_checkpoint.empty() || !std::filesystem::exists(directory / "config.json")) return;
  try {
    loop::check_shape(config, model::read_model_config(directory));
  } catch (const ConfigError& error) {
    add_lines(problems, error.what());
  }
}

/// A run would say it before the first row of its data.
void check_reward(const config::RunConfig& config, Sentences& problems) {
  if (config.has_users_reward()) return;
  try {
    reward::make_reward(config.rm_type, loop::reward_config(config));
  } catch (const ConfigError& error) {
    add_lines(problems, error.what());
  }
}

void print(std::string_view title, const Sentences& sentences) {
  if (sentences.empty()) return;
  fmt::print("\n{}\n", title);
  for (const std::string& sentence : sentences) fmt::print("  {}\n", sentence);
}

}  // namespace

int dry_run(config::ParsedFlags& flags) {
  Sentences absent, problems;
  try {
    config::complete_and_validate(flags, absent);
    note_data(flags.config, absent);
    loop::make_translations(flags.config);
    config::note_unread_flags(flags);
    loop::check_devices(flags.config);
  } catch (const ConfigError& error) {
    add_lines(problems, error.what());
  }
  check_model(flags.config, problems);
  check_reward(flags.config, problems);
  fmt::print("{} --dry-run: {} flags, {} notes, {} paths not here, {} refusals\n",
             flags.config.train_async ? "slime train-async" : "slime train", flags.given.size() - 1,
             flags.warnings.size(), absent.size(), problems.size());
  print("Notes:", flags.warnings);
  print("Not on this machine; a run reads them, and what is in them was not checked:", absent);
  print("A run would refuse:", problems);
  fmt::print(
      "\nA run would {}. Nothing was loaded or written, no function of the user's imported.\n",
      !problems.empty() ? "not begin"
      : absent.empty()  ? "begin"
                        : "begin where these paths are");
  return problems.empty() ? 0 : 2;
}

}  // namespace slime::cli
