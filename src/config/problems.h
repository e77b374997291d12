#pragma once

/// Everything that is wrong with a configuration, told at once.

#include <string>
#include <string_view>
#include <vector>

namespace slime::config {

class Problems {
 public:
  /// Paths that are not on this machine are problems, or only noted in `absent` where that is given.
  explicit Problems(std::vector<std::string> found, std::vector<std::string>* absent = nullptr)
      : messages_(std::move(found)), absent_(absent) {}

  void require(bool holds, std::string_view message) {
    if (!holds) messages_.emplace_back(message);
  }
  /// A file or a directory that a run reads.
  void require_path(bool is_there, std::string_view message) {
    if (!is_there) (absent_ != nullptr ? *absent_ : messages_).emplace_back(message);
  }
  const std::vector<std::string>& messages() const { return messages_; }
  bool notes_absent_paths() const { return absent_ != nullptr; }
  /// Throws ConfigError with all of them, without passwords.
  void throw_if_any();

 private:
  std::vector<std::string> messages_;
  std::vector<std::string>* absent_;
};

}  // namespace slime::config
