#pragma once

/// Arguments of a built-in by parameter, as Python binds them: by position, then by name.

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace slime::text::jinja {

class BoundArguments {
 public:
  /// Fails (kType) on an unknown name, a parameter given twice and on surplus arguments.
  BoundArguments(std::string_view function, Arguments arguments,
                 std::initializer_list<std::string_view> parameters);

  /// Null where absent.
  const Value* find(std::size_t index) const { return values_[index] ? &*values_[index] : nullptr; }
  const Value& require(std::size_t index) const;

  bool flag(std::size_t index, bool if_absent) const;
  /// None counts as absent; anything else but an integer fails.
  int64_t index(std::size_t index, int64_t if_absent) const;
  /// None counts as absent; anything else is printed.
  std::optional<std::string> text(std::size_t index) const;

 private:
  std::string function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace slime::text::jinja
