#pragma once

/// The functions of the user's that a run calls, by its flags.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rollout/generate_fn.h"
#include "rollout/reward_call.h"

namespace slime::plugin {
class Hosts;
struct Hook;
}  // namespace slime::plugin

namespace slime::loop {

class EngineDoor;

/// Generate functions of training and of evaluation sets, each once; empty: the engine draws alone.
std::vector<std::string> generate_paths(const config::RunConfig& config);

/// Whether any function of the user's is called.
bool has_plugins(const config::RunConfig& config);

class Plugins {
 public:
  /// Starts the hosts and resolves all functions in them. Throws ConfigError with everything that is
  /// wrong with any of them, in Python's own words. `unknown`: flags that only functions know, by name
  /// (ParsedFlags::unknown). `logs`: a folder for what they write. `door`: where functions find the
  /// engine; null where none wants it. It and `config` outlive the object.
  Plugins(const config::RunConfig& config, const json::object& unknown,
          const std::filesystem::path& logs, EngineDoor* door);
  /// Ends the hosts.
  ~Plugins();

  /// What there is to tell a person, tracebacks and hosts that died, goes here from now on; it comes
  /// on the hosts' thread. `tell` outlives the object.
  void tell_by(std::function<void(const std::string&)> tell);

  /// --custom-rm-path.
  rollout::AskScoreFn reward();

  /// One of generate_paths(); for none: empty.
  rollout::GenerateFn generate(const std::string& path, bool is_evaluation);

  /// RolloutHooks::abort_functions: what they ask the engine for ends with what it has, and
  /// GenerateState.aborted says so.
  void abort_functions(bool aborts);

 private:
  int place_of(const std::string& hook, const std::string& path) const;

  const config::RunConfig& config_;
  EngineDoor* const door_;
  const std::chrono::duration<double> reward_timeout_;
  const int64_t vocab_size_;
  const int64_t max_tokens_;
  const std::vector<plugin::Hook> hooks_;
  const std::unique_ptr<plugin::Hosts> hosts_;
};

}  // namespace slime::loop
