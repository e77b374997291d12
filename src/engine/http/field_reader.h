#pragma once

/// Reads a request's JSON object field by field into our types. Every problem is collected with the
/// field's name and what it may be, so that a client sees all of them at once; nothing is guessed.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/sample.h"

namespace slime::engine {

class FieldReader {
 public:
  /// `prefix` stands before names in messages: "sampling_params." Both references outlive the
  /// reader.
  FieldReader(const json::object& object, std::string prefix, std::vector<std::string>& problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  /// The field's value; nullptr when it is absent or null, which mean the same.
  const json::value* find(std::string_view name) const;

  /// Each returns nothing when the field is absent or, after noting the problem, when it is wrong.
  std::optional<bool> boolean(std::string_view name);
  /// A whole number in [low, high]; 3.0 is one, "3" and true are not.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view name);
  std::optional<std::string> text(std::string_view name, std::size_t limit_bytes);
  const json::object* object(std::string_view name);
  const json::array* array(std::string_view name);
  /// A string or a list of strings.
  std::vector<std::string> texts(std::string_view name, std::size_t limit_count,
                                 std::size_t limit_bytes);
  /// A list of token ids below `vocab_size`.
  std::vector<TokenId> token_ids(std::string_view name, std::int64_t vocab_size);
  std::vector<TokenId> token_ids(const json::value& list, std::string_view name,
                                 std::int64_t vocab_size);

  /// Notes a problem when the field asks for something: present, and not null, false, 0, "", [] or
  /// {}.
  void refuse(std::string_view name, std::string_view why);

  /// Notes a problem for each member that is not among `known`, with the name that was probably
  /// meant: a misspelt name must not be a setting that does nothing.
  void refuse_unknown(std::span<const std::string_view> known);

  void note(std::string_view name, std::string_view sentence);

 private:
  const json::object& object_;
  std::string prefix_;
  std::vector<std::string>& problems_;
};

/// The whole number that `value` holds, if it does.
std::optional<std::int64_t> whole_number(const json::value& value);

/// The request body as an object. Throws ConfigError, also when an object in it has a key twice.
json::object parse_body(std::string_view body);

}  // namespace slime::engine
