// Functions of the user's that the trainer calls.

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "config/rules.h"

namespace slime::config {
namespace {

using Path = std::pair<std::string_view, const std::string&>;  // flag, what is given

void check_form(const Path& path, Problems& problems) {
  const auto& [flag, text] = path;
  const bool names_function = text.find('.') != std::string::npos && !text.ends_with('.') &&
                              !text.starts_with('.') && !text.ends_with(':');
  problems.require(
      names_function || text.find('/') != std::string::npos,
      fmt::format("{} {}: should be module.name, file.py:name or file.py", flag, text));
}

void check_loss(const RunConfig& config, Problems& problems) {
  const bool has_function = !config.custom_loss_function_path.empty();
  const bool has_library = !config.custom_loss_library.empty();
  const bool is_custom = config.loss_type == "custom_loss";
  problems.require(!(has_function && has_library),
                   "--custom-loss-function-path and --custom-loss-library: choose one");
  problems.require(
      !is_custom || has_function || has_library,
      "--loss-type custom_loss: needs --custom-loss-function-path, a Python function, or "
      "--custom-loss-library, a shared library");
  problems.require(is_custom || !has_function,
                   "--custom-loss-function-path: needs --loss-type custom_loss");
  problems.require(is_custom || !has_library,
                   "--custom-loss-library: needs --loss-type custom_loss");
  problems.require_path(
      !has_library || std::filesystem::is_regular_file(config.custom_loss_library),
      fmt::format("--custom-loss-library {}: no such file; docs/plugins.md has the "
                  "command that builds one",
                  config.custom_loss_library));
}

}  // namespace

void check_trainer_functions(const RunConfig& config, Problems& problems) {
  const std::string correction = config.users_correction(), reducer = config.users_reducer();
  const Path paths[] = {
      {"--custom-loss-function-path", config.custom_loss_function_path},
      {"--custom-advantage-function-path", config.custom_advantage_function_path},
      {"--rollout-data-postprocess-path", config.rollout_data_postprocess_path},
      {"--custom-tis-function-path", correction},
      {"--custom-pg-loss-reducer-function-path", reducer},
      {"--custom-megatron-init-path", config.custom_megatron_init_path},
      {"--custom-megatron-before-log-prob-hook-path",
       config.custom_megatron_before_log_prob_hook_path},
      {"--custom-megatron-before-train-step-hook-path",
       config.custom_megatron_before_train_step_hook_path},
  };
  for (const Path& path : paths) {
    if (path.second.empty()) continue;
    check_form(path, problems);
    problems.require(!config.debug_rollout_only,
                     fmt::format("{}: --debug-rollout-only trains nothing", path.first));
  }
  check_loss(config, problems);
  for (const auto& [flag, path] :
       {Path{"--custom-advantage-function-path", config.custom_advantage_function_path},
        Path{"--rollout-data-postprocess-path", config.rollout_data_postprocess_path}}) {
    problems.require(
        path.empty() || config.has_advantages(),
        fmt::format("{}: --loss-type {} has no advantages; leave it out", flag, config.loss_type));
  }
  for (const auto& [flag, path] : {Path{"--custom-tis-function-path", correction},
                                   Path{"--custom-pg-loss-reducer-function-path", reducer}}) {
    problems.require(
        path.empty() || config.loss_type == "policy_loss",
        fmt::format("{}: is a part of --loss-type policy_loss, not of {}", flag, config.loss_type));
  }
}

}  // namespace slime::config
