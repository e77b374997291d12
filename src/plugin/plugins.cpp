#include "plugin/plugins.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "config/eval_config.h"
#include "config/parse_flags.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "engine/sampling_json.h"
#include "model/config.h"
#include "plugin/filter.h"
#include "plugin/generate.h"
#include "plugin/hosts.h"
#include "plugin/reward.h"
#include "plugin/run_api.h"
#include "plugin/sample_hook.h"

namespace slime::plugin {
namespace {

/// Those that all hosts have come first.
template <typename Function>
std::vector<Function> in_order_of_hosts(std::vector<Function> functions) {
  std::stable_partition(functions.begin(), functions.end(),
                        [](const Function& each) { return !each.keeps_state; });
  return functions;
}

template <typename Function>
std::vector<Function> functions_of(const config::RunConfig& config,
                                   const std::vector<std::string>& eval_rewards,
                                   const std::vector<std::string>& generates) {
  std::vector<Function> all;
  const auto add = [&all](std::string hook, const std::string& path, bool keeps_state) {
    const bool is_known = std::ranges::any_of(
        all, [&](const Function& each) { return each.hook == hook && each.path == path; });
    if (!is_known) all.push_back({std::move(hook), path, keeps_state});
  };
  for (const config::UsersFunction& each : config::users_functions(config))
    add(std::string(each.hook), each.path, each.keeps_state);
  for (const std::string& path : eval_rewards) add("reward", path, false);
  for (const std::string& path : generates) add("generate", path, false);
  return in_order_of_hosts(std::move(all));
}

bool trains_with_engine_log_probs(const config::RunConfig& config) {
  return !config.debug_rollout_only &&
         (config.use_rollout_logprobs || config.use_tis || config.use_rs ||
          config.get_mismatch_metrics || config.use_score_centering ||
          !config.custom_tis_function_path.empty());
}

/// As the original's GenerateState has them.
json::object to_params(const rollout::GenerateCall& call) {
  json::object params = engine::to_json(call.sampling);
  json::object custom;
  if (call.keeps_top_p_ids) custom["return_top_p_token_ids"] = true;
  if (call.keeps_top_p_log_probs) custom["return_top_p_log_probs"] = true;
  if (!custom.empty()) params["custom_params"] = std::move(custom);
  return params;
}

}  // namespace

std::vector<std::string> import_functions(const config::RunConfig& config,
                                          const std::vector<std::string>& eval_rewards,
                                          const std::filesystem::path& logs) {
  HostsConfig hosts{.python = config.plugin_python,
                    .num_hosts = 1,
                    .logs = logs,
                    .flags = config::flags_for_users(config),
                    .hooks = {},
                    .hooks_of_first = {},
                    .memory_bytes = static_cast<uint64_t>(config.plugin_memory_gb * (1 << 30))};
  const std::vector<std::string> draws =
      config.generates() ? config::generate_paths(config) : std::vector<std::string>();
  struct Named {
    std::string hook;
    std::string path;
    bool keeps_state = false;
  };
  for (const Named& each : functions_of<Named>(config, eval_rewards, draws))
    hosts.hooks_of_first.push_back({each.hook, each.path});
  std::vector<std::string> notes;
  if (hosts.hooks_of_first.empty()) return notes;
  Hosts started(hosts);
  started.tell_by([&](const std::string& note) {
    // Not where their output is, which is gone by then.
    if (note.find(logs.string()) == std::string::npos) notes.push_back(note);
  });
  started.tell_by(nullptr);
  return notes;
}

bool opens_door(const config::RunConfig& config) {
  return !config::generate_paths(config).empty() || config::has_users_rollout(config) ||
         config::has_users_evaluation(config);
}

HostsConfig Plugins::hosts_config(const json::object& unknown, const PluginPlaces& places) {
  if (functions_.empty()) return {};
  json::object flags = unknown;  // the functions' own, keys of services among them
  for (const auto& flag : config::flags_for_users(config_)) flags[flag.key()] = flag.value();
  if (config_.save.empty()) flags["save"] = places.save.string();
  if (!places.load.empty()) flags["load"] = places.load.string();
  if (config_.eval_interval) {
    flags["eval_datasets"] = json::array();
    for (json::object& set : config::eval_set_records(config_))
      flags["eval_datasets"].as_array().push_back(std::move(set));
  }
  if (config_.use_rollout_routing_replay) {
    const model::ModelConfig model = model::read_model_config(config_.hf_checkpoint);
    flags["num_layers"] = model.num_layers;  // the shape of the engine's choices
    flags["moe_router_topk"] = model.experts.per_token;
  }
  if (run_api_ != nullptr) {
    flags["sglang_router_ip"] = "127.0.0.1";
    flags["sglang_router_port"] = run_api_->port();
  }
  HostsConfig hosts{.python = config_.plugin_python,
                    .num_hosts = static_cast<int>(config_.plugin_hosts),
                    .logs = places.logs,
                    .flags = std::move(flags),
                    .hooks = {},
                    .hooks_of_first = {},
                    .on_question =
                        [&handler = *question_handler_](Question question, ReplyFn reply) {
                          handler.take(std::move(question), std::move(reply));
                        },
                    .memory_bytes = static_cast<uint64_t>(config_.plugin_memory_gb * (1 << 30)),
                    .repeats_lost_calls = config_.plugin_repeat_lost_calls,
                    .hurries = core::Interrupt::came,
                    .on_stuck = core::Interrupt::stop_now};
  for (const Function& each : functions_)
    (each.keeps_state ? hosts.hooks_of_first : hosts.hooks).push_back({each.hook, each.path});
  return hosts;
}

Plugins::Plugins(const config::RunConfig& config, const json::object& unknown,
                 const std::vector<std::string>& eval_rewards, const PluginPlaces& places,
                 std::unique_ptr<RunApi> run_api)
    : config_(config),
      run_api_(std::move(run_api)),
      vocab_size_(model::read_model_config(config.hf_checkpoint).vocab_size),
      max_tokens_([&] {
        const int64_t positions = model::read_model_config(config.hf_checkpoint).max_positions;
        return positions > 0 ? positions : std::numeric_limits<int64_t>::max();
      }()),
      functions_(functions_of<Function>(
          config, eval_rewards,
          run_api_ ? config::generate_paths(config) : std::vector<std::string>())),
      question_handler_(std::make_unique<QuestionHandler>(config)),
      hosts_(std::make_unique<Hosts>(hosts_config(unknown, places))),
      step_functions_(std::make_unique<StepFunctions>(
          config, *hosts_, *question_handler_,
          [this](std::string_view hook, const std::string& path) { return place(hook, path); })),
      batch_functions_(std::make_unique<BatchFunctions>(
          config, *hosts_, *question_handler_,
          [this](std::string_view hook, const std::string& path) { return place(hook, path); })),
      rollout_functions_(std::make_unique<RolloutFunctions>(
          config, *hosts_, *question_handler_,
          [this](std::string_view hook, const std::string& path) { return place(hook, path); })) {}

Plugins::~Plugins() = default;

int64_t Plugins::num_sampled_tokens() const {
  return run_api_ ? run_api_->num_sampled_tokens() : 0;
}

void Plugins::open_door(engine::EngineClient& engine, int64_t max_request_tokens) {
  if (run_api_) run_api_->open(engine, max_request_tokens);
}

int Plugins::place(std::string_view hook, const std::string& path) const {
  const auto found = std::ranges::find_if(
      functions_, [&](const Function& each) { return each.hook == hook && each.path == path; });
  check(found != functions_.end(), "a function that is called was resolved");
  return static_cast<int>(found - functions_.begin());
}

std::chrono::duration<double> Plugins::timeout() const {
  return std::chrono::duration<double>(config_.plugin_timeout_seconds);
}

std::chrono::duration<double> Plugins::reward_timeout() const {
  return std::chrono::duration<double>(
      config_.reward_timeout_seconds.value_or(config_.plugin_timeout_seconds));
}

SampleLimits Plugins::limits(bool is_evaluation) const {
  const bool centers = !is_evaluation && !config_.debug_rollout_only && config_.use_score_centering;
  return {.vocab_size = vocab_size_,
          .max_tokens = max_tokens_,
          .needs_log_probs = !is_evaluation && trains_with_engine_log_probs(config_),
          .needs_support = centers && config_.rollout_top_p < 1,
          .needs_head = centers && config_.rollout_top_p == 1 ? config_.score_centering_top_k : 0};
}

std::unique_ptr<UsersPrompts> Plugins::prompts(const setup::ModelText& text) {
  return std::make_unique<UsersPrompts>(config_, text, *hosts_, *question_handler_,
                                        place("data_source", config_.data_source_path),
                                        limits(/*is_evaluation=*/true));
}

void Plugins::tell_by(std::function<void(const std::string&)> tell) {
  hosts_->tell_by(std::move(tell));
}

bool Plugins::scores(const Sample& sample) const {
  return config_.has_users_reward() || !sample.custom_rm_path.empty();
}

/// Functions can name another one for a sample.
Expected<int> Plugins::reward_of(const Sample& sample) const {
  const std::string& own = sample.custom_rm_path;
  const std::string& path = own.empty() ? config_.custom_rm_path : own;
  const auto found = std::ranges::find_if(functions_, [&path](const Function& each) {
    return each.hook == "reward" && each.path == path;
  });
  if (found != functions_.end()) return static_cast<int>(found - functions_.begin());
  return failure(fmt::format(
      "Sample.custom_rm_path is {}, which neither --custom-rm-path nor --eval-config names", path));
}

rollout::AskScoreFn Plugins::reward() {
  const bool has_any = std::ranges::find(functions_, "reward", &Function::hook) != functions_.end();
  if (!has_any) return nullptr;
  return [this](Sample sample, std::stop_token stop, std::function<void(Expected<Sample>)> answer) {
    const Expected<int> hook = reward_of(sample);
    if (!hook) return answer(failure(hook.error().message));
    score(*hosts_, *hook, reward_timeout(), std::move(sample), std::move(stop), std::move(answer));
  };
}

decltype(rollout::Scorer::function) Plugins::scorer() {
  if (config_.group_rm && config_.has_users_reward())
    return rollout::GroupScorer{.ask = list_reward()};
  rollout::AskScoreFn ask = reward();
  if (!ask) return {};
  return rollout::FunctionScorer{.ask = std::move(ask),
                                 .scores = [this](const Sample& sample) { return scores(sample); },
                                 .ask_parts = list_reward()};
}

rollout::AskGroupFn Plugins::list_reward() {
  if (!config_.has_users_reward()) return nullptr;
  return [this](Group group, std::stop_token stop, std::function<void(Expected<Group>)> answer) {
    const Expected<int> hook = reward_of(group.samples.front());
    if (!hook) return answer(failure(hook.error().message));
    score_group(*hosts_, *hook, reward_timeout(), std::move(group), std::move(stop),
                std::move(answer));
  };
}

rollout::AskSampleHookFn Plugins::sample_hooks() {
  if (config_.rollout_sample_hook_path.empty()) return nullptr;
  std::vector<int> hooks;
  for (const std::string& path : config_.rollout_sample_hook_path)
    hooks.push_back(place("sample_hook", path));
  return [this, hooks](rollout::SampleInHook question, std::stop_token stop,
                       rollout::AnswerFn<Sample> answer) {
    call_sample_hooks(*hosts_, hooks,
                      {.timeout = timeout(),
                       .limits = limits(question.is_evaluation),
                       .rollout_id = rollout_id_,
                       .is_evaluation = question.is_evaluation},
                      std::move(question.sample), std::move(stop), std::move(answer));
  };
}

rollout::AskFilterFn Plugins::filter() {
  if (!config::has_users_filter(config_)) return nullptr;
  const int hook = place("dynamic_filter", config_.dynamic_sampling_filter_path);
  return [this, hook](Group group, std::stop_token stop,
                      std::function<void(Expected<rollout::FilteredGroup>)> answer) {
    plugin::filter(*hosts_, hook, timeout(), std::move(group), std::move(stop),
                   [answer = std::move(answer)](Expected<Filtered> filtered) {
                     if (!filtered) return answer(failure(filtered.error().message));
                     answer(rollout::FilteredGroup{.group = std::move(filtered->group),
                                                   .verdict = std::move(filtered->verdict)});
                   });
  };
}

rollout::GenerateFn Plugins::generate(const std::string& path, bool is_evaluation) {
  if (path.empty()) return nullptr;
  const GenerateHook how{
      .hook = place("generate", path),
      .timeout = std::chrono::duration<double>(*config_.generate_timeout_seconds),
      .limits = limits(is_evaluation),
      .is_evaluation = is_evaluation};
  return [this, how](rollout::GenerateCall call, std::stop_token stop,
                     rollout::AnswerFn<MadeSamples> answer) {
    plugin::generate(*hosts_, how, to_params(call), std::move(call.sample), std::move(stop),
                     std::move(answer));
  };
}

void Plugins::abort_functions(bool aborts) {
  // The flag first: a conversation whose turn was aborted looks at it.
  if (aborts) hosts_->set_aborted(true);
  if (run_api_ != nullptr) run_api_->set_aborting(aborts);
  if (!aborts) hosts_->set_aborted(false);
}

}  // namespace slime::plugin
