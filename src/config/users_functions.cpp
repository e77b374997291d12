#include "config/users_functions.h"

namespace slime::config {
namespace {

constexpr std::string_view kFilterHub = "slime.rollout.filter_hub.";
constexpr std::string_view kFirstIn = "slime.rollout.data_source.pop_first";

bool generates(const RunConfig& config) {
  return !config.trains_on_rows() && !config.debug_train_only &&
         config.load_debug_rollout_data.empty();
}

std::vector<UsersFunction> all_named(const RunConfig& config) {
  const bool draws = generates(config);
  const bool makes_batches = !config.trains_on_rows() && !config.debug_rollout_only;
  const auto unless = [](bool is_built_in, const std::string& path) {
    return is_built_in ? std::string() : path;
  };
  const UsersFunction all[] = {
      {.flag = "--custom-rm-path",
       .hook = "reward",
       .path = unless(!config.has_users_reward(), config.custom_rm_path),
       .is_called = draws,
       .is_of_samples = true},
      {.flag = "--dynamic-sampling-filter-path",
       .hook = "dynamic_filter",
       .path = unless(!has_users_filter(config), config.dynamic_sampling_filter_path),
       .is_called = draws,
       .is_of_samples = true},
      {.flag = "--buffer-filter-path",
       .hook = "buffer_filter",
       .path = unless(config.buffer_filter_path == kFirstIn, config.buffer_filter_path),
       .is_called = draws,
       .keeps_state = true},
      {.flag = "--rollout-sample-filter-path",
       .hook = "sample_filter",
       .path = config.rollout_sample_filter_path,
       .is_called = draws,
       .keeps_state = true},
      {.flag = "--rollout-all-samples-process-path",
       .hook = "all_samples",
       .path = config.rollout_all_samples_process_path,
       .is_called = draws,
       .keeps_state = true},
      {.flag = "--custom-reward-post-process-path",
       .hook = "reward_post_process",
       .path = unless(!config.has_users_post_process(), config.custom_reward_post_process_path),
       .is_called = makes_batches,
       .keeps_state = true},
      {.flag = "--custom-convert-samples-to-train-data-path",
       .hook = "convert",
       .path = config.custom_convert_samples_to_train_data_path,
       .is_called = makes_batches,
       .keeps_state = true},
      {.flag = "--custom-rollout-log-function-path",
       .hook = "rollout_log",
       .path = config.custom_rollout_log_function_path,
       .is_called = true,
       .keeps_state = true},
      {.flag = "--custom-eval-rollout-log-function-path",
       .hook = "eval_log",
       .path = config.custom_eval_rollout_log_function_path,
       .is_called = draws && config.eval_interval.has_value(),
       .keeps_state = true},
  };
  std::vector<UsersFunction> named;
  for (const UsersFunction& each : all) {
    if (!each.path.empty()) named.push_back(each);
  }
  for (const std::string& path : config.rollout_sample_hook_path) {
    named.push_back({.flag = "--rollout-sample-hook-path",
                     .hook = "sample_hook",
                     .path = path,
                     .is_called = draws,
                     .is_of_samples = true});
  }
  return named;
}

std::vector<UsersFunction> those_called(const RunConfig& config, bool are_called) {
  std::vector<UsersFunction> functions = all_named(config);
  std::erase_if(functions,
                [are_called](const UsersFunction& each) { return each.is_called != are_called; });
  return functions;
}

}  // namespace

bool has_users_filter(const RunConfig& config) {
  const std::string& path = config.dynamic_sampling_filter_path;
  return !path.empty() && !path.starts_with(kFilterHub);
}

std::vector<UsersFunction> users_functions(const RunConfig& config) {
  return those_called(config, true);
}

std::vector<UsersFunction> idle_functions(const RunConfig& config) {
  return those_called(config, false);
}

}  // namespace slime::config
