// Evaluation, and what is written.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "config/eval_config.h"
#include "config/rules.h"
#include "config/users_functions.h"
#include "core/error.h"

namespace slime::config {

namespace {

/// The samples of each rollout have a file, or all have the same.
void check_dump_paths(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  const std::string &saved = config.save_debug_rollout_data,
                    &loaded = config.load_debug_rollout_data;
  for (const auto& [name, path] : {std::pair{"--save-debug-rollout-data", saved},
                                   std::pair{"--load-debug-rollout-data", loaded}}) {
    const bool has_number = path.find("{rollout_id") != std::string::npos;
    problems.require(has_number || path.find('{') == std::string::npos,
                     fmt::format("{} {}: should contain {{rollout_id}}", name, path));
    problems.require(!std::filesystem::is_directory(path),
                     fmt::format("{0} {1}: is a folder; give the name of a file, such as "
                                 "{1}/{{rollout_id}}.jsonl",
                                 name, path));
    if (has_number || path.empty() || config.num_rollout == 1) continue;
    flags.warnings.push_back(
        fmt::format("{} {}: has no {{rollout_id}}: {}", name, path,
                    path == saved ? "each rollout step writes over the file of the one before"
                                  : "every rollout step trains the samples of this one file"));
  }
}

/// Leaves the trackers that have a process of their own in --report-to.
void check_trackers(RunConfig& config, Problems& problems) {
  const std::vector<std::string> with_package{"wandb", "mlflow", "trackio"};
  std::vector<std::string> trackers;
  for (const std::string& word : config.report_to.peek()) {
    if (word == "none" || word == "tensorboard") continue;
    const bool is_known =
        word == "all" || std::ranges::find(with_package, word) != with_package.end();
    problems.require(is_known, fmt::format("--report-to {}: should be {}, all, tensorboard or none",
                                           word, fmt::join(with_package, ", ")));
    for (const std::string& tracker : with_package) {
      const bool is_asked = word == tracker || word == "all";
      if (is_asked && std::ranges::find(trackers, tracker) == trackers.end())
        trackers.push_back(tracker);
    }
  }
  if (std::ranges::find(trackers, "wandb") != trackers.end()) {
    config.use_wandb = true;
  } else if (config.use_wandb.peek()) {
    trackers.insert(trackers.begin(), "wandb");
  }
  config.report_to = trackers;
  problems.require(
      config.log_samples.peek() >= 0 && config.log_samples.peek() <= 100,
      fmt::format("--log-samples {}: should be from 0 to 100", config.log_samples.peek()));
}

}  // namespace

void check_output(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  check_trackers(config, problems);
  problems.require(config.eval_prompt_data.size() == 1 || config.eval_prompt_data.size() % 2 == 0,
                   "--eval-prompt-data: pairs of name and path");
  if (config.eval_prompt_data.size() == 1)
    config.eval_prompt_data = std::vector<std::string>{"aime", config.eval_prompt_data.front()};
  const bool has_eval_data = !config.eval_prompt_data.empty() || !config.eval_config.empty();
  problems.require(!config.eval_interval || has_eval_data || has_users_evaluation(config),
                   "--eval-interval: needs --eval-prompt-data or --eval-config");
  const bool has_eval_config =
      config.eval_config.empty() || std::filesystem::exists(config.eval_config);
  if (!has_eval_config && problems.notes_absent_paths()) {
    problems.require_path(false, fmt::format("--eval-config {}: no such file; the data sets that "
                                             "it names were not checked",
                                             config.eval_config));
  } else if (has_eval_data && config.eval_prompt_data.size() % 2 == 0) {
    try {
      eval_sets_of(config);
    } catch (const ConfigError& error) {
      problems.require(false, error.what());
    }
  }
  problems.require(
      config.load_debug_rollout_data_subsample > 0 && config.load_debug_rollout_data_subsample <= 1,
      "--load-debug-rollout-data-subsample: should be in (0, 1]");
  problems.require(!config.wandb_always_use_train_step || config.use_wandb,
                   "--wandb-always-use-train-step: needs --use-wandb");
  problems.require(!config.eval_interval || *config.eval_interval >= 1,
                   "--eval-interval: should be at least 1");
  problems.require(!config.save_interval || *config.save_interval >= 1,
                   "--save-interval: should be at least 1");
  problems.require(config.n_samples_per_eval_prompt >= 1,
                   "--n-samples-per-eval-prompt: should be at least 1");
  problems.require(!config.eval_temperature || *config.eval_temperature >= 0,
                   "--eval-temperature: should not be negative");
  problems.require(config.view_port >= 0 && config.view_port <= 65535,
                   fmt::format("--view-port {}: 0 to 65535 work", config.view_port));
  problems.require(!config.profile || config.profile_step_start < config.profile_step_end,
                   fmt::format("--profile-step-start {} is not below --profile-step-end {}",
                               config.profile_step_start, config.profile_step_end));
  for (const auto& [name, size] :
       {std::pair{"--rollout-files-mb-per-step", config.rollout_files_mb_per_step},
        std::pair{"--rollout-files-gb", config.rollout_files_gb}}) {
    problems.require(
        size > 0 && size < 1e6,
        fmt::format("{} {}: should be above 0; --no-save-rollouts keeps none", name, size));
  }
  problems.require(!(config.debug_rollout_only && config.debug_train_only),
                   "--debug-rollout-only and --debug-train-only: choose one");
  check_dump_paths(flags, problems);
  problems.require(config.load_debug_rollout_data.empty() ||
                       config.load_debug_rollout_data != config.save_debug_rollout_data,
                   "--load-debug-rollout-data and --save-debug-rollout-data: the same path");
  if (!config.load_debug_rollout_data.empty()) config.debug_train_only = true;
}

namespace {

/// Supervised training evaluates rows: nothing is sampled and scored.
void check_row_evaluation(ParsedFlags& flags) {
  std::vector<std::string> ignored;
  for (const std::string& name : flags.given) {
    const bool is_of_drawing =
        name == "--n-samples-per-eval-prompt" ||
        (name.starts_with("--eval-") && name != "--eval-prompt-data" && name != "--eval-config" &&
         name != "--eval-interval" && name != "--eval-input-key" && name != "--eval-tool-key");
    if (is_of_drawing && std::ranges::find(ignored, name) == ignored.end()) ignored.push_back(name);
  }
  if (ignored.empty()) return;
  flags.warnings.push_back(
      fmt::format("{} {} no effect: --loss-type sft_loss evaluates the loss on rows, and draws "
                  "nothing",
                  fmt::join(ignored, ", "), ignored.size() == 1 ? "has" : "have"));
}

}  // namespace

void check_evaluation_runs(ParsedFlags& flags) {
  if (!flags.config.eval_config.empty() && !flags.config.eval_prompt_data.empty()) {
    flags.warnings.push_back(fmt::format(
        "--eval-prompt-data: has no effect beside --eval-config {}", flags.config.eval_config));
  }
  const RunConfig& config = flags.config;
  std::vector<std::string> ignored;
  for (const std::string& name : flags.given) {
    const bool is_evaluation = name.starts_with("--eval-") ||
                               name == "--n-samples-per-eval-prompt" ||
                               name == "--skip-eval-before-train";
    if (is_evaluation && std::ranges::find(ignored, name) == ignored.end()) ignored.push_back(name);
  }
  std::string why;
  if (config.is_supervised() && config.eval_interval) {
    return check_row_evaluation(flags);
  }
  if (config.is_preference()) {
    why =
        fmt::format("--loss-type {} generates nothing, so nothing is evaluated", config.loss_type);
  } else if (!config.load_debug_rollout_data.empty()) {
    why = "--load-debug-rollout-data generates nothing, so nothing is evaluated";
  } else if (!config.eval_interval) {
    why = "without --eval-interval nothing is evaluated";
  }
  if (!why.empty() && !ignored.empty())
    flags.warnings.push_back(fmt::format("{} {} no effect: {}", fmt::join(ignored, ", "),
                                         ignored.size() == 1 ? "has" : "have", why));
}

}  // namespace slime::config
