#pragma once

/// A value inside a JSON file, with its path for messages: "tokenizer.json:
/// pre_tokenizer.pretokenizers[0].behavior".
///
/// Wrong types and missing members are noted in a list instead of thrown, so that a file's problems
/// are reported all at once; the accessor then returns an empty value and reading goes on.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::text {

class JsonField final {
 public:
  /// `value` and `problems` must outlive this and everything reached from it.
  JsonField(const json::value& value, std::string path, std::vector<std::string>& problems)
      : value_(&value), path_(std::move(path)), problems_(&problems) {}

  /// A member; a missing one reads as null.
  JsonField operator[](std::string_view key) const;
  std::vector<JsonField> elements() const;

  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }
  bool is_object() const { return value_->is_object(); }
  /// The number 0, integer or not.
  bool is_zero() const;
  const std::string& path() const { return path_; }

  /// Of the wrong type: noted, and empty. A default makes null and missing acceptable.
  std::string_view string() const;
  bool boolean(std::optional<bool> otherwise = {}) const;
  int64_t integer(int64_t lowest, int64_t highest, std::optional<int64_t> otherwise = {}) const;
  const json::object& object() const;
  const json::array& array() const;

  /// Notes "<path>: <what>".
  void reject(std::string_view what) const;

 private:
  const json::value* value_;
  std::string path_;
  std::vector<std::string>* problems_;
};

}  // namespace slime::text
