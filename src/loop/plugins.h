#pragma once

/// The functions of the user's that a run calls, by its flags.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "config/run_config.h"
#include "rollout/reward_call.h"

namespace slime::plugin {
class Hosts;
}

namespace slime::loop {

class Plugins {
 public:
  /// Starts the hosts and resolves all functions in them. Throws ConfigError with everything that is
  /// wrong with any of them, in Python's own words. `logs`: a folder for what they write.
  Plugins(const config::RunConfig& config, const std::filesystem::path& logs);
  /// Ends the hosts.
  ~Plugins();

  /// What there is to tell a person, tracebacks and hosts that died, goes here from now on; it comes
  /// on the hosts' thread. `tell` outlives the object.
  void tell_by(std::function<void(const std::string&)> tell);

  /// --custom-rm-path.
  rollout::AskScoreFn reward();

 private:
  const std::chrono::duration<double> reward_timeout_;
  const std::unique_ptr<plugin::Hosts> hosts_;
};

}  // namespace slime::loop
