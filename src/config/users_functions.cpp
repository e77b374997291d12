#include "config/users_functions.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "config/eval_config.h"

namespace slime::config {
namespace {

constexpr std::string_view kFilterHub = "slime.rollout.filter_hub.";
// Built-in orders of groups that wait, by the original's names.
constexpr std::string_view kFirstIn[] = {"slime.rollout.data_source.pop_first",
                                         "slime.data.data_source.pop_first"};
constexpr std::string_view kStalestFirst[] = {"slime.data.data_source.pop_oldest",
                                              "slime.rollout.data_source.pop_oldest"};

constexpr std::string_view kStock = "slime.rollout.sglang_rollout.generate_rollout";
constexpr std::string_view kRows = "slime.rollout.sft_rollout.generate_rollout";
constexpr std::string_view kFullyAsync[] = {
    "slime.rollout.fully_async_rollout.generate_rollout_fully_async",
    "examples.fully_async.fully_async_rollout.generate_rollout_fully_async",
    "fully_async_rollout.generate_rollout_fully_async"};
constexpr std::string_view kDataSources[] = {
    "slime.data.data_source.RolloutDataSourceWithBuffer",
    "slime.data.data_source.RolloutDataSource", "slime.data.queue_data_source.QueueDataSource",
    "slime.rollout.data_source.RolloutDataSourceWithBuffer",
    "slime.rollout.data_source.RolloutDataSource"};

bool is_one_of(std::span<const std::string_view> names, std::string_view path) {
  return std::ranges::find(names, path) != names.end();
}

std::vector<UsersFunction> all_named(const RunConfig& config) {
  const bool draws = config.generates();
  const bool makes_batches = !config.trains_on_rows() && !config.debug_rollout_only;
  const auto unless = [](bool is_built_in, const std::string& path) {
    return is_built_in ? std::string() : path;
  };
  const UsersFunction all[] = {
      {.flag = "--data-source-path",
       .hook = "data_source",
       .path = unless(
           std::ranges::find(kDataSources, config.data_source_path) != std::end(kDataSources),
           config.data_source_path),
       .is_called = draws,
       .keeps_state = true},
      {.flag = "--rollout-function-path",
       .hook = "rollout",
       .path =
           unless(is_built_in_rollout(config.rollout_function_path), config.rollout_function_path),
       .is_called = draws,
       .keeps_state = true},
      {.flag = "--rollout-function-path",
       .hook = "weight_update",
       .path = unless(
           is_built_in_rollout(config.rollout_function_path) || !draws || config.debug_rollout_only,
           config.rollout_function_path),
       .is_called = true,
       .keeps_state = true},
      {.flag = "--custom-update-weight-post-write-path",
       .hook = "post_write",
       .path = config.custom_update_weight_post_write_path,
       .is_called =
           draws && config.num_engine_workers > 0 && config.update_weight_transport == "disk",
       .keeps_state = true},
      {.flag = "--eval-function-path",
       .hook = "evaluate",
       .path = unless(
           is_built_in_rollout(config.eval_function_path) ||
               (!config.eval_interval && config.eval_function_path == config.rollout_function_path),
           config.eval_function_path),
       .is_called = draws && config.eval_interval.has_value(),
       .keeps_state = true},
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
       .path = unless(is_one_of(kFirstIn, config.buffer_filter_path) ||
                          is_one_of(kStalestFirst, config.buffer_filter_path),
                      config.buffer_filter_path),
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

bool names_math_verify(std::string_view rm_type) {
  return rm_type == "math_verify" || rm_type == "boxed_math_verify";
}

std::vector<UsersFunction> users_functions(const RunConfig& config) {
  return those_called(config, true);
}

namespace {

bool calls(const RunConfig& config, std::string_view hook) {
  const std::vector<UsersFunction> called = those_called(config, true);
  return std::ranges::find(called, hook, &UsersFunction::hook) != called.end();
}

}  // namespace

bool has_users_rollout(const RunConfig& config) { return calls(config, "rollout"); }
bool has_users_evaluation(const RunConfig& config) { return calls(config, "evaluate"); }
bool has_users_data_source(const RunConfig& config) { return calls(config, "data_source"); }

bool shares_tensors(const RunConfig& config) {
  return !config.custom_loss_function_path.empty() ||
         !config.custom_advantage_function_path.empty() ||
         !config.rollout_data_postprocess_path.empty() || !config.users_correction().empty() ||
         !config.users_reducer().empty();
}

bool names_rows(std::string_view path) { return path == kRows; }

bool is_built_in_rollout(std::string_view path) {
  return path == kStock || path == kRows ||
         std::ranges::find(kFullyAsync, path) != std::end(kFullyAsync);
}

bool gives_stalest_first(const RunConfig& config) {
  const std::string& filter = config.buffer_filter_path;
  return filter.empty() ? config.buffer_sort_by_staleness.get() : is_one_of(kStalestFirst, filter);
}

bool names_fully_async(const RunConfig& config) {
  return std::ranges::find(kFullyAsync, config.rollout_function_path) != std::end(kFullyAsync);
}

std::vector<UsersFunction> idle_functions(const RunConfig& config) {
  return those_called(config, false);
}

std::vector<std::string> generate_paths(const RunConfig& config) {
  std::vector<std::string> paths;
  const auto add = [&paths](const std::string& path) {
    if (!path.empty() && std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
  };
  add(config.custom_generate_function_path);
  if (config.eval_interval && !has_users_evaluation(config)) {
    for (const EvalSetConfig& set : eval_sets_of(config)) add(set.custom_generate_function_path);
  }
  return paths;
}

}  // namespace slime::config
