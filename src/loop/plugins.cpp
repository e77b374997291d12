#include "loop/plugins.h"

#include <algorithm>
#include <limits>

#include "config/eval_config.h"
#include "config/parse_flags.h"
#include "core/error.h"
#include "loop/engine_door.h"
#include "model/config.h"
#include "plugin/generate.h"
#include "plugin/hosts.h"
#include "plugin/reward.h"

namespace slime::loop {
namespace {

std::vector<plugin::Hook> hooks_of(const config::RunConfig& config) {
  std::vector<plugin::Hook> hooks;
  if (config.has_users_reward()) hooks.push_back({.hook = "reward", .path = config.custom_rm_path});
  for (const std::string& path : generate_paths(config))
    hooks.push_back({.hook = "generate", .path = path});
  return hooks;
}

plugin::HostsConfig hosts_config(const config::RunConfig& config, const json::object& unknown,
                                 const std::filesystem::path& logs,
                                 const std::vector<plugin::Hook>& hooks, const EngineDoor* door) {
  json::object flags = unknown;  // the functions' own, keys of services among them
  for (const auto& flag : config::flags_for_users(config)) flags[flag.key()] = flag.value();
  if (door != nullptr) {
    flags["sglang_router_ip"] = "127.0.0.1";
    flags["sglang_router_port"] = door->port();
  }
  return {.python = config.plugin_python,
          .num_hosts = static_cast<int>(config.plugin_hosts),
          .logs = logs,
          .flags = std::move(flags),
          .hooks = hooks};
}

bool trains_with_engine_log_probs(const config::RunConfig& config) {
  return !config.debug_rollout_only &&
         (config.use_rollout_logprobs || config.use_tis || config.use_rs ||
          config.get_mismatch_metrics || !config.custom_tis_function_path.empty());
}

/// As the original's GenerateState has them.
json::object to_params(const engine::SamplingParams& sampling, bool keeps_top_p_ids) {
  json::object params{{"temperature", sampling.temperature},
                      {"top_p", sampling.top_p},
                      {"top_k", sampling.top_k},
                      {"max_new_tokens", sampling.max_new_tokens},
                      {"stop", nullptr},
                      {"stop_token_ids", nullptr},
                      {"skip_special_tokens", sampling.skip_special_tokens},
                      {"no_stop_trim", sampling.no_stop_trim},
                      {"spaces_between_special_tokens", sampling.spaces_between_special_tokens}};
  if (!sampling.stop.empty()) params["stop"] = json::value_from(sampling.stop);
  if (!sampling.stop_token_ids.empty())
    params["stop_token_ids"] = json::value_from(sampling.stop_token_ids);
  if (sampling.min_new_tokens > 0) params["min_new_tokens"] = sampling.min_new_tokens;
  if (sampling.repetition_penalty != 1) params["repetition_penalty"] = sampling.repetition_penalty;
  if (keeps_top_p_ids) params["custom_params"] = json::object{{"return_top_p_token_ids", true}};
  return params;
}

}  // namespace

std::vector<std::string> generate_paths(const config::RunConfig& config) {
  std::vector<std::string> paths;
  const auto add = [&paths](const std::string& path) {
    if (!path.empty() && std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
  };
  add(config.custom_generate_function_path);
  if (config.eval_interval) {
    for (const config::EvalSetConfig& set : config::eval_sets_of(config))
      add(set.custom_generate_function_path);
  }
  return paths;
}

bool has_plugins(const config::RunConfig& config) {
  return config.has_users_reward() || !generate_paths(config).empty();
}

Plugins::Plugins(const config::RunConfig& config, const json::object& unknown,
                 const std::filesystem::path& logs, EngineDoor* door)
    : config_(config),
      door_(door),
      reward_timeout_(config.reward_timeout_seconds.value_or(config.plugin_timeout_seconds)),
      vocab_size_(model::read_model_config(config.hf_checkpoint).vocab_size),
      max_tokens_([&] {
        const int64_t positions = model::read_model_config(config.hf_checkpoint).max_positions;
        return positions > 0 ? positions : std::numeric_limits<int64_t>::max();
      }()),
      hooks_(hooks_of(config)),
      hosts_(std::make_unique<plugin::Hosts>(hosts_config(config, unknown, logs, hooks_, door))) {}

Plugins::~Plugins() = default;

void Plugins::tell_by(std::function<void(const std::string&)> tell) {
  hosts_->tell_by(std::move(tell));
}

int Plugins::place_of(const std::string& hook, const std::string& path) const {
  const auto found = std::ranges::find_if(
      hooks_, [&](const plugin::Hook& each) { return each.hook == hook && each.path == path; });
  check(found != hooks_.end(), "a function that is called was found when the run began");
  return static_cast<int>(found - hooks_.begin());
}

rollout::AskScoreFn Plugins::reward() {
  return [this, place = place_of("reward", config_.custom_rm_path)](
             Sample sample, std::stop_token stop, std::function<void(Expected<Sample>)> answer) {
    plugin::score(*hosts_, place, reward_timeout_, std::move(sample), std::move(stop),
                  std::move(answer));
  };
}

rollout::GenerateFn Plugins::generate(const std::string& path, bool is_evaluation) {
  if (path.empty()) return nullptr;
  const plugin::GenerateHook how{
      .hook = place_of("generate", path),
      .timeout = std::chrono::duration<double>(*config_.generate_timeout_seconds),
      .limits = {.vocab_size = vocab_size_,
                 .max_tokens = max_tokens_,
                 .needs_log_probs = !is_evaluation && trains_with_engine_log_probs(config_)},
      .is_evaluation = is_evaluation};
  return [this, how](rollout::GenerateCall call, std::stop_token stop,
                     rollout::AnswerFn<std::vector<Sample>> answer) {
    plugin::generate(*hosts_, how, to_params(call.sampling, call.keeps_top_p_ids),
                     std::move(call.sample), std::move(stop), std::move(answer));
  };
}

void Plugins::abort_functions(bool aborts) {
  // The flag first: a conversation whose turn was aborted looks at it.
  if (aborts) hosts_->set_aborted(true);
  if (door_ != nullptr) door_->set_aborting(aborts);
  if (!aborts) hosts_->set_aborted(false);
}

}  // namespace slime::loop
