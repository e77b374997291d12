#pragma once

/// Log files of users' functions that run next to trainers, and which of them people were told of.
/// Hosts of the other functions name theirs as they print (plugin/hosts.h); these are of all ranks,
/// in worker processes and on other hosts too, so the folder of the logs is looked at.

#include <filesystem>
#include <optional>
#include <string>

namespace slime::report {

class UsersOutput {
 public:
  explicit UsersOutput(std::filesystem::path logs) : logs_(std::move(logs)) {}

  /// "what users' functions next to the trainer print is in LOGS/trainer-0.log", of several ranks
  /// LOGS/trainer-*.log: once, when something is there.
  std::optional<std::string> line();

 private:
  std::filesystem::path logs_;
  bool was_told_ = false;
};

}  // namespace slime::report
