#pragma once

/// Everything that is wrong with a configuration, told at once.

#include <string>
#include <string_view>
#include <vector>

namespace slime::config {

class Problems {
 public:
  explicit Problems(std::vector<std::string> found) : messages_(std::move(found)) {}

  void require(bool holds, std::string_view message) {
    if (!holds) messages_.emplace_back(message);
  }
  /// Throws ConfigError with all of them, without passwords, followed by `notes`.
  void throw_if_any(const std::vector<std::string>& notes);

 private:
  std::vector<std::string> messages_;
};

}  // namespace slime::config
