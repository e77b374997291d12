#pragma once

/// Settings of a chat that are sent with each question: sampling, and switches of the template.

#include <string>
#include <string_view>

#include "core/json.h"

namespace slime::chat {

class Settings final {
 public:
  /// "0.7" for temperature, "off" for thinking; "default" takes a setting away. Throws ConfigError with the
  /// names that there are, or the values that one takes.
  void set(std::string_view name, std::string_view value);

  /// Members of a chat completion.
  const json::object& members() const { return members_; }
  /// "temperature 0.7, thinking off"; empty: all are the model's defaults.
  std::string text() const;
  /// A line for each name: what it takes.
  static std::string names();

 private:
  json::object members_;
};

}  // namespace slime::chat
