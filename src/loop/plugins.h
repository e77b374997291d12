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
#include "loop/batch_functions.h"
#include "loop/question_desk.h"
#include "loop/step_functions.h"
#include "rollout/generate_fn.h"
#include "rollout/rollout.h"

namespace slime::plugin {
class Hosts;
struct HostsConfig;
}  // namespace slime::plugin

namespace slime::loop {

class EngineDoor;

/// Generate functions of training and of evaluation sets, each once; empty: the engine draws alone.
std::vector<std::string> generate_paths(const config::RunConfig& config);

class Plugins {
 public:
  /// Starts the hosts and resolves all functions in them. Throws ConfigError with everything that is
  /// wrong with any of them, in Python's own words. `unknown`: flags that only functions know, by name
  /// (ParsedFlags::unknown). `eval_rewards`: functions of evaluation sets. `logs`: a folder for what
  /// they write. `door`: where functions find the engine; null: none draws. It and `config` outlive
  /// the object.
  Plugins(const config::RunConfig& config, const json::object& unknown,
          const std::vector<std::string>& eval_rewards, const std::filesystem::path& logs,
          EngineDoor* door);
  /// Ends the hosts.
  ~Plugins();

  /// What there is to tell a person, tracebacks and hosts that died, goes here from now on; it comes
  /// on the hosts' thread. `tell` outlives the object.
  void tell_by(std::function<void(const std::string&)> tell);

  // For the rollout; null where there is no such function.

  /// --custom-rm-path, and those of evaluation sets.
  rollout::AskScoreFn reward();
  /// Whether a sample's score comes from reward().
  bool scores(const Sample& sample) const;
  /// --group-rm.
  decltype(rollout::RolloutHooks::ask_group_score) group_reward();
  /// --rollout-sample-hook-path, one after the other.
  decltype(rollout::RolloutHooks::ask_sample_hook) sample_hooks();
  /// What they are told; of evaluations too.
  void set_rollout_id(int64_t rollout_id) { rollout_id_ = rollout_id; }
  /// --dynamic-sampling-filter-path.
  decltype(rollout::RolloutHooks::ask_filter) filter();

  /// Those that see whole steps.
  StepFunctions& of_steps() { return *step_functions_; }
  BatchFunctions& of_batches() { return *batch_functions_; }

  /// One of generate_paths(); for none: empty.
  rollout::GenerateFn generate(const std::string& path, bool is_evaluation);

  /// RolloutHooks::abort_functions: what they ask the engine for ends with what it has, and
  /// GenerateState.aborted says so.
  void abort_functions(bool aborts);

 private:
  int place(std::string_view hook, const std::string& path) const;
  plugin::HostsConfig hosts_config(const json::object& unknown, const std::filesystem::path& logs);

  struct Function {
    std::string hook;
    std::string path;
    bool keeps_state = false;
  };

  const config::RunConfig& config_;
  EngineDoor* const door_;
  const std::chrono::duration<double> timeout_;
  const std::chrono::duration<double> reward_timeout_;
  const int64_t vocab_size_;
  const int64_t max_tokens_;
  std::vector<Function> functions_;  // in the order of the hosts' hooks
  std::atomic<int64_t> rollout_id_{0};
  const std::unique_ptr<QuestionDesk> desk_;
  const std::unique_ptr<plugin::Hosts> hosts_;
  const std::unique_ptr<StepFunctions> step_functions_;
  const std::unique_ptr<BatchFunctions> batch_functions_;
};

}  // namespace slime::loop
