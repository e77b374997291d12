// Model, data, rollout and reward.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "config/rules.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "core/json.h"
#include "core/sampling_bounds.h"

namespace slime::config {

namespace {

constexpr int64_t kMostThreads = 1024;  // of one kind: more than a machine has cores
constexpr int kLongestReward = 86'400;  // seconds: a day
constexpr double kMostCacheGigabytes = 65536;

}  // namespace

namespace {

void check_prompt_data(RunConfig& config, Problems& problems) {
  const bool makes_prompts = has_users_data_source(config) || has_users_rollout(config);
  const bool has_data = !config.prompt_data.empty() || !config.environment.peek().empty() ||
                        !config.load_debug_rollout_data.empty();
  problems.require(
      has_data || makes_prompts || config.takes_requests,
      "--prompt-data: missing; a file of rows, or a data set of the hub: openai/gsm8k:train");
  problems.require(!config.disable_rollout_global_dataset || makes_prompts,
                   "--disable-rollout-global-dataset: prompts come from elsewhere then; name a "
                   "--data-source-path or --rollout-function-path of your own");
  const bool reads_rows = !config.prompt_data.empty() && !has_users_data_source(config) &&
                          !config.disable_rollout_global_dataset;
  problems.require(
      !config.debug_train_only || config.trains_on_rows() ||
          !config.load_debug_rollout_data.empty(),
      "--debug-train-only: nothing is generated, so there is nothing to train on; give "
      "--load-debug-rollout-data, or --loss-type sft_loss or dpo_loss with rows");
  problems.require(!makes_prompts || reads_rows || config.num_rollout,
                   "--num-rollout: is needed where prompts are not rows of --prompt-data");
}

}  // namespace

void check_data(RunConfig& config, Problems& problems) {
  problems.require(!config.hf_checkpoint.empty(),
                   "--hf-checkpoint: the model directory is missing");
  if (!config.hf_checkpoint.empty()) {
    problems.require_path(std::filesystem::is_directory(config.hf_checkpoint),
                          fmt::format("--hf-checkpoint {}: no such directory{}",
                                      config.hf_checkpoint, config.model_guess));
  }
  check_prompt_data(config, problems);
  for (const std::string& word : config.rename_columns) {
    const std::size_t sign = word.find('=');
    problems.require(sign != std::string::npos && sign > 0 && sign + 1 < word.size(),
                     fmt::format("--rename-columns {}: should be old=new", word));
  }
  problems.require(config.num_data_workers >= 0 && config.num_data_workers <= kMostThreads,
                   fmt::format("--num-data-workers {}: should be between 0 and {}",
                               config.num_data_workers, kMostThreads));
  problems.require(!config.streaming_data || !config.rollout_shuffle,
                   "--streaming-data and --rollout-shuffle: a shuffle needs all rows; shuffle the "
                   "file once instead");
  problems.require(!config.streaming_data || config.num_rollout,
                   "--streaming-data: needs --num-rollout, the number of rows is not known");
  if (config.is_preference()) config.n_samples_per_prompt = 2;  // the preferred and the rejected
  problems.require(config.rollout_batch_size > 0,
                   config.rollout_batch_size == 0
                       ? "--rollout-batch-size: is missing; add it, the prompts of a step"
                       : fmt::format("--rollout-batch-size {}: should be at least 1",
                                     config.rollout_batch_size));
  problems.require(
      config.n_samples_per_prompt > 0,
      fmt::format("--n-samples-per-prompt {}: should be at least 1", config.n_samples_per_prompt));
  problems.require(config.num_rollout || config.num_epoch,
                   "--num-rollout or --num-epoch: the length of the run is missing");
  problems.require(!config.num_rollout || *config.num_rollout >= 1,
                   fmt::format("--num-rollout {}: a run has at least one rollout step",
                               config.num_rollout.value_or(0)));
  problems.require(!config.start_rollout_id || *config.start_rollout_id >= 0,
                   fmt::format("--start-rollout-id {}: should not be negative",
                               config.start_rollout_id.value_or(0)));
  problems.require(config.num_threads >= 0 && config.num_threads <= kMostThreads,
                   fmt::format("--num-threads {}: should be between 0 and {}", config.num_threads,
                               kMostThreads));
  const int64_t first = config.start_rollout_id.value_or(0);
  problems.require(
      first <= 0 || !config.num_rollout || first < *config.num_rollout,
      fmt::format(
          "--start-rollout-id {}: nothing is left to do, it should be below --num-rollout {}",
          first, config.num_rollout.value_or(0)));
  problems.require(
      config.keep_checkpoints >= 0,
      fmt::format("--keep-checkpoints {}: should not be negative", config.keep_checkpoints));
  problems.require(!config.num_epoch || *config.num_epoch >= 1,
                   "--num-epoch: should be at least 1");
  problems.require(
      config.label_key != config.input_key || config.label_key.empty(),
      fmt::format("--label-key {}: is the same field as --input-key", config.label_key));
  try {
    if (!parse_json(config.apply_chat_template_kwargs, "--apply-chat-template-kwargs")
             .is_object()) {
      problems.require(false, "--apply-chat-template-kwargs: should be a JSON object");
    }
  } catch (const ConfigError& error) {
    problems.require(false, error.what());
  }
}

namespace {

void check_memory(RunConfig& config, Problems& problems) {
  problems.require(config.kv_cache_gb >= 0 && config.kv_cache_gb <= kMostCacheGigabytes,
                   fmt::format("--kv-cache-gb {}: should be from 0 (as much as a full batch needs) "
                               "to {}",
                               config.kv_cache_gb, kMostCacheGigabytes));
  const std::optional<double> share = config.sglang_mem_fraction_static;
  problems.require(!share || (*share > 0 && *share < 1),
                   "--sglang-mem-fraction-static: should be between 0 and 1");
  problems.require(!(config.offload_rollout && config.no_offload_rollout),
                   "--offload-rollout and --no-offload-rollout: choose one");
  problems.require(config.device == "cpu" || config.dtype != "float64",
                   "--device cuda --dtype float64: a GPU has bfloat16, float16 and float32");
}

}  // namespace

void check_rollout(RunConfig& config, Problems& problems) {
  problems.require(
      config.rollout_temperature > 0,
      fmt::format("--rollout-temperature {}: should be above 0; the trainer divides by it",
                  config.rollout_temperature));
  problems.require(!(config.rollout_temperature > kHighestTemperature),
                   fmt::format("--rollout-temperature {}: should be at most {:g}",
                               config.rollout_temperature, kHighestTemperature));
  problems.require(config.rollout_top_p > 0 && config.rollout_top_p <= 1,
                   fmt::format("--rollout-top-p {}: should be in (0, 1]", config.rollout_top_p));
  problems.require(
      config.rollout_top_k == -1 || config.rollout_top_k >= 1,
      fmt::format("--rollout-top-k {}: should be -1 (all) or at least 1", config.rollout_top_k));
  const bool generates = !config.trains_on_rows() && config.load_debug_rollout_data.empty();
  problems.require(!generates || config.rollout_max_response_len,
                   "--rollout-max-response-len: is missing; add it, the most tokens of a response");
  problems.require(config.rollout_max_response_len.value_or(1) > 0,
                   fmt::format("--rollout-max-response-len {}: should be at least 1",
                               config.rollout_max_response_len.value_or(0)));
  if (config.custom_rm_path.empty() && names_math_verify(config.rm_type)) {
    config.custom_rm_path = std::string(kMathVerifyReward);
    config.custom_rm_path.stems_from(config.rm_type);
  }
  const bool has_reward = !generates || !config.rm_type.empty() || config.debug_rollout_only ||
                          config.use_opd || config.has_users_reward() ||
                          !config.custom_generate_function_path.empty() ||
                          has_users_rollout(config) || config.takes_requests;
  problems.require(
      has_reward || !config.imitates_samples,
      "--loss-type sft_loss: rows are trained as they are with --rollout-function-path "
      "slime.rollout.sft_rollout.generate_rollout; samples that are generated and "
      "filtered (rejection sampling) need a reward, --rm-type or --custom-rm-path");
  problems.require(
      has_reward || config.imitates_samples,
      "--rm-type: a reward is needed (math, dapo, dapo_box, deepscaler, f1, gpqa, gsm8k, ifbench, "
      "math_verify, random, remote_rm, boxed_...), or --custom-rm-path");
  for (const int64_t id : config.rollout_stop_token_ids) {
    problems.require(id >= 0 && id <= kLargestTokenId,
                     fmt::format("--rollout-stop-token-ids {}: should be between 0 and {}", id,
                                 kLargestTokenId));
  }
  problems.require(
      config.max_filter_ratio >= 0,
      fmt::format("--max-filter-ratio {}: should not be negative", config.max_filter_ratio));
  problems.require(
      config.max_failed_groups >= 0,
      fmt::format("--max-failed-groups {}: should not be negative", config.max_failed_groups));
  problems.require(config.max_failed_group_share >= 0 && config.max_failed_group_share <= 1,
                   fmt::format("--max-failed-group-share {}: should be between 0 and 1",
                               config.max_failed_group_share));
  problems.require(
      config.max_untrained_steps >= 0,
      fmt::format("--max-untrained-steps {}: should not be negative", config.max_untrained_steps));
  if (!config.over_sampling_batch_size) config.over_sampling_batch_size = config.rollout_batch_size;
  problems.require(
      *config.over_sampling_batch_size >= config.rollout_batch_size,
      fmt::format("--over-sampling-batch-size {}: should be at least --rollout-batch-size {}",
                  *config.over_sampling_batch_size, config.rollout_batch_size));
  problems.require(config.over_sampling_refill != "group" || config.partial_rollout,
                   "--over-sampling-refill group: needs --partial-rollout, which keeps what is "
                   "begun and not finished");
  problems.require(config.sglang_server_concurrency > 0,
                   "--sglang-server-concurrency: should be at least 1");
  problems.require(config.sglang_max_running_requests > 0,
                   "--sglang-max-running-requests: should be at least 1");
  problems.require(config.sglang_chunked_prefill_size > 0,
                   "--sglang-chunked-prefill-size: should be at least 1");
  check_memory(config, problems);
  problems.require(
      !config.mask_offpolicy_in_partial_rollout || config.partial_rollout || config.train_async,
      "--mask-offpolicy-in-partial-rollout: needs --partial-rollout, or "
      "slime train-async");
  if (config.rollout_max_context_len) {
    if (!config.rollout_max_prompt_len)
      config.rollout_max_prompt_len = *config.rollout_max_context_len - 1;
    problems.require(
        *config.rollout_max_prompt_len < *config.rollout_max_context_len,
        fmt::format("--rollout-max-prompt-len {}: should be below --rollout-max-context-len {}",
                    *config.rollout_max_prompt_len, *config.rollout_max_context_len));
  }
  problems.require(
      config.is_preference() || config.has_sft_loss() || !names_rows(config.rollout_function_path),
      fmt::format("--rollout-function-path {}: reads rows that are trained as they are; "
                  "it needs --loss-type sft_loss",
                  config.rollout_function_path));
}

namespace {

void check_plugins(const RunConfig& config, Problems& problems) {
  for (const UsersFunction& each : users_functions(config)) {
    if (each.hook == "weight_update") continue;  // the rollout function's
    const std::string& path = each.path;
    const bool names_function = path.find('.') != std::string::npos && !path.ends_with('.') &&
                                !path.starts_with('.') && !path.ends_with(':');
    problems.require(
        names_function || path.find('/') != std::string::npos,
        fmt::format("{} {}: should be module.name, file.py:name or file.py", each.flag, path));
  }
  problems.require(!config.plugin_python.empty(), "--plugin-python: names no interpreter");
  problems.require(config.plugin_hosts >= 1 && config.plugin_hosts <= kMostThreads,
                   fmt::format("--plugin-hosts {}: should be between 1 and {}", config.plugin_hosts,
                               kMostThreads));
  problems.require(
      config.plugin_timeout_seconds >= 0.001 && config.plugin_timeout_seconds <= kLongestReward,
      fmt::format("--plugin-timeout-seconds {}: should be between 0.001 and {}",
                  config.plugin_timeout_seconds, kLongestReward));
}

}  // namespace

std::optional<std::string> reward_key_problem(std::string_view rm_type, std::string_view key,
                                              std::string_view flag) {
  constexpr std::string_view kRecords[] = {"dapo", "dapo_box"};
  constexpr std::string_view kNumbers[] = {"math",    "deepscaler", "f1",    "gpqa",
                                           "ifbench", "random",     "gsm8k", "math_verify"};
  constexpr std::string_view kFields[] = {"score", "acc"};
  std::string_view rule = rm_type;
  if (rule.starts_with("boxed_")) rule.remove_prefix(std::string_view("boxed_").size());
  const auto is_in = [](const auto& list, std::string_view word) {
    return std::ranges::find(list, word) != std::end(list);
  };
  if (is_in(kRecords, rule)) {
    if (is_in(kFields, key)) return std::nullopt;
    return fmt::format("--rm-type {}: gives records; {}, use {} score", rm_type,
                       key.empty() ? "which field trains is missing"
                                   : fmt::format("they have no number \"{}\"", key),
                       flag);
  }
  if (!is_in(kNumbers, rule) || key.empty()) return std::nullopt;
  return fmt::format("{} {}: --rm-type {} gives a number, not a record; leave it out", flag, key,
                     rm_type);
}

namespace {

void check_reward_key(const RunConfig& config, Problems& problems) {
  if (!config.generates() || config.has_users_reward() || config.has_users_post_process() ||
      config.debug_rollout_only)
    return;
  if (const auto problem = reward_key_problem(config.rm_type, config.reward_key, "--reward-key"))
    problems.require(false, *problem);
  // Sets of --eval-config have rules of their own (loop/prompts.cpp).
  if (config.eval_reward_key.empty() || !config.eval_interval || !config.eval_config.empty())
    return;
  if (const auto problem =
          reward_key_problem(config.rm_type, config.eval_reward_key, "--eval-reward-key"))
    problems.require(false, *problem);
}

}  // namespace

void check_rewards(const RunConfig& config, Problems& problems) {
  check_reward_key(config, problems);
  problems.require(!config.rm_type.ends_with("remote_rm") || !config.rm_url.empty(),
                   "--rm-type remote_rm: needs --rm-url");
  problems.require(config.rm_url.empty() || config.rm_url.starts_with("http://"),
                   fmt::format("--rm-url {}: should begin with http://", config.rm_url));
  const std::string& url = config.rm_url;
  const std::string after_scheme = url.substr(url.find("//") + 1);
  const std::string host = after_scheme.substr(0, after_scheme.find_first_of("/?#", 1));
  problems.require(host.find('@') == std::string::npos,
                   fmt::format("--rm-url {}: user names and passwords in URLs are not supported",
                               config.rm_url));
  problems.require(config.remote_rm_attempts >= 1, "--remote-rm-attempts: should be at least 1");
  problems.require(config.reward_threads >= 1 && config.reward_threads <= kMostThreads,
                   fmt::format("--reward-threads {}: should be between 1 and {}",
                               config.reward_threads, kMostThreads));
  const double seconds = config.reward_timeout_seconds.value_or(1);
  problems.require(seconds >= 0.001 && seconds <= kLongestReward,
                   fmt::format("--reward-timeout-seconds {}: should be between 0.001 and {}",
                               seconds, kLongestReward));
  const std::string& post_process = config.custom_reward_post_process_path;
  const std::string& convert = config.custom_convert_samples_to_train_data_path;
  for (const auto& [name, path] :
       {std::pair{"--custom-reward-post-process-path",
                  config.has_users_post_process() ? post_process : std::string()},
        std::pair{"--custom-convert-samples-to-train-data-path", convert}}) {
    problems.require(path.empty() || !config.overlong_buffer_len,
                     fmt::format("{} {}: with --overlong-buffer-len two would say what a response "
                                 "is worth; use one of the two",
                                 name, path));
    problems.require(path.empty() || !config.trains_on_rows(),
                     fmt::format("{} {}: rows of a data set are trained as they are", name, path));
  }
  problems.require(
      convert.empty() || !config.has_users_post_process(),
      fmt::format("--custom-convert-samples-to-train-data-path {}: it says what trains, "
                  "so --custom-reward-post-process-path would not be called",
                  convert));
  for (const auto& [name, path] : {std::pair{"--custom-rm-path", config.custom_rm_path.get()},
                                   std::pair{"--custom-reward-post-process-path", post_process}}) {
    problems.require(!path.starts_with(kTeacherModule) || config.opd_type == "sglang",
                     fmt::format("{} {}: needs --use-opd --opd-type sglang", name, path));
  }
  check_plugins(config, problems);
  if (config.overlong_buffer_len) {
    const int64_t longest = config.rollout_max_response_len.value_or(0);
    problems.require(*config.overlong_buffer_len >= 0 && *config.overlong_buffer_len <= longest,
                     fmt::format("--overlong-buffer-len {}: should be between 0 and "
                                 "--rollout-max-response-len {}",
                                 *config.overlong_buffer_len, longest));
    problems.require(config.overlong_penalty_factor >= 0,
                     "--overlong-penalty-factor: should not be negative");
  }
}

}  // namespace slime::config
