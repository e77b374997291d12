#pragma once

/// The functions of the user's that a run calls, by its flags.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/expected.h"
#include "plugin/batch_functions.h"
#include "plugin/question_handler.h"
#include "plugin/rollout_functions.h"
#include "plugin/step_functions.h"
#include "plugin/users_prompts.h"
#include "rollout/generate_fn.h"
#include "rollout/rollout.h"

namespace slime::plugin {
class Hosts;
struct HostsConfig;
struct SampleLimits;
}  // namespace slime::plugin

namespace slime::plugin {

class RunApi;

/// Folders that functions write to and read from.
struct PluginPlaces {
  std::filesystem::path logs;  // of what they print
  std::filesystem::path save;  // of the run's checkpoints: args.save where no --save is given
  std::filesystem::path load;  // of the checkpoint that the run goes on from; empty: none
};

/// Whether users' functions may call the run's HTTP API.
bool opens_door(const config::RunConfig& config);

/// Imports the functions that a run would call, in a host that ends with the call. Throws ConfigError
/// as Plugins does; returns what else there is to tell of them. `eval_rewards`: those of evaluation sets.
std::vector<std::string> import_functions(const config::RunConfig& config,
                                          const std::vector<std::string>& eval_rewards,
                                          const std::filesystem::path& logs);

/// In a run that has none no host is started, and each call answers as without them.
/// One class because all of them are called in the same hosts, by their places among the hooks.
class Plugins {
 public:
  /// Starts the hosts and resolves all functions in them. Throws ConfigError with everything that is
  /// wrong with any of them, in Python's own words. `unknown`: flags that only functions know, by name
  /// (ParsedFlags::unknown). `eval_rewards`: functions of evaluation sets. `run_api`: where functions find
  /// the engine; null: none draws. `config` outlives the object.
  Plugins(const config::RunConfig& config, const json::object& unknown,
          const std::vector<std::string>& eval_rewards, const PluginPlaces& places,
          std::unique_ptr<RunApi> run_api);
  /// Ends the hosts.
  ~Plugins();

  /// Functions that ask the engine are answered from now on. `engine` outlives the object;
  /// `max_request_tokens`: of prompt and response.
  void open_door(engine::EngineClient& engine, int64_t max_request_tokens);
  /// That the engines sampled for functions so far (RunApiEngine::num_sampled_tokens). Any thread.
  int64_t num_sampled_tokens() const;

  /// What there is to tell a person, tracebacks and hosts that died, goes here from now on; it comes
  /// on the hosts' thread. `tell` outlives the object.
  void tell_by(std::function<void(const std::string&)> tell);

  /// Metrics that functions logged since the last call, for the step that ends now.
  report::Metrics take_logged() { return question_handler_->take_logged(); }

  // For the rollout; null where there is no such function.

  /// --custom-rm-path, those of evaluation sets and of samples that name one; --group-rm.
  decltype(rollout::Scorer::function) scorer();
  /// --rollout-sample-hook-path, one after the other.
  rollout::AskSampleHookFn sample_hooks();
  /// What they are told; of evaluations too.
  void set_rollout_id(int64_t rollout_id) { rollout_id_ = rollout_id; }
  /// --dynamic-sampling-filter-path.
  rollout::AskFilterFn filter();

  /// Those that see whole steps.
  StepFunctions& of_steps() { return *step_functions_; }
  BatchFunctions& of_batches() { return *batch_functions_; }

  /// Those that stand for whole steps.
  RolloutFunctions& of_rollouts() { return *rollout_functions_; }

  /// --data-source-path. `text` outlives it.
  std::unique_ptr<UsersPrompts> prompts(const setup::ModelText& text);

  /// What samples of functions must keep to.
  SampleLimits limits(bool is_evaluation) const;

  /// One of config::generate_paths(); for none: empty.
  rollout::GenerateFn generate(const std::string& path, bool is_evaluation);

  /// RolloutHooks::abort_functions: what they ask the engine for ends with what it has, and
  /// GenerateState.aborted says so.
  void abort_functions(bool aborts);

 private:
  /// Whether the score of a sample comes from a user's function.
  bool scores(const Sample& sample) const;
  rollout::AskScoreFn reward();
  rollout::AskGroupFn list_reward();
  std::chrono::duration<double> timeout() const;
  std::chrono::duration<double> reward_timeout() const;
  Expected<int> reward_of(const Sample& sample) const;
  int place(std::string_view hook, const std::string& path) const;
  HostsConfig hosts_config(const json::object& unknown, const PluginPlaces& places);

  struct Function {
    std::string hook;
    std::string path;
    bool keeps_state = false;
  };

  const config::RunConfig& config_;
  const std::unique_ptr<RunApi> run_api_;
  const int64_t vocab_size_;
  const int64_t max_tokens_;
  std::vector<Function> functions_;  // in the order of the hosts' hooks
  std::atomic<int64_t> rollout_id_{0};
  const std::unique_ptr<QuestionHandler> question_handler_;
  const std::unique_ptr<Hosts> hosts_;
  const std::unique_ptr<StepFunctions> step_functions_;
  const std::unique_ptr<BatchFunctions> batch_functions_;
  const std::unique_ptr<RolloutFunctions> rollout_functions_;
};

}  // namespace slime::plugin
