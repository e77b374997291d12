#pragma once

/// All plug-in hosts of a run.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/json.h"
#include "plugin/host.h"

namespace slime::plugin {

struct HostsConfig {
  std::string python = "python3";
  int num_hosts = 1;
  std::filesystem::path logs;  // made when it does not exist
  json::object flags;          // `args`
  std::vector<Hook> hooks;
  /// Behind those: functions that may keep something from call to call, so there is one of each.
  std::vector<Hook> hooks_of_first;
  std::function<void(Question, ReplyFn)> on_question = {};  // as HostConfig's
  uint64_t memory_bytes = 0;                                // of each
  bool repeats_lost_calls = false;                          // as HostConfig's
  std::function<bool()> hurries = {};                       // as HostConfig's
  std::chrono::duration<double> patience{30};
  std::function<void(const std::string&)> on_stuck = {};
};

class Hosts {
 public:
  /// Waits until all are ready. Throws ConfigError with everything that is wrong with any hook.
  explicit Hosts(const HostsConfig& config);
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  /// Any thread: to the host that has the least to do, or the one that has the function.
  void call(Call call);

  /// To all hosts: Host::set_aborted.
  void set_aborted(bool is_aborted);

  /// For people, from now on: `tell` is called on threads of hosts. What was to be told before comes
  /// at once.
  void tell_by(std::function<void(const std::string&)> tell);
  void tell(const std::string& text);
  /// Only the first time.
  void tell_once(const std::string& text);

 private:
  std::mutex mutex_;
  std::function<void(const std::string&)> tell_;  // guarded by mutex_, as what follows
  std::vector<std::string> untold_;
  std::vector<std::string> told_once_;
  const int num_shared_hooks_;
  std::vector<std::unique_ptr<Host>> hosts_;  // last: they tell
};

}  // namespace slime::plugin
