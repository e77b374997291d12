#pragma once

/// The three kinds of error (STYLE section 4): a bug of ours, an impossible configuration or
/// corrupt input, and a normal bad day, which is a value (core/expected.h) and not an exception.

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace slime {

/// A broken invariant of this program. Nobody catches it but the top of a thread, which hands it to
/// the owner.
class BugError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Something the user gave cannot work: a flag, a file, a model directory. what() says what is
/// wrong, where, and what would work; several problems are several lines. The program ends with
/// exit code 2 before any long work.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  explicit ConfigError(const std::vector<std::string>& problems);
};

/// Throws BugError unless `condition`. `statement` is the sentence that should hold.
inline void check(bool condition, std::string_view statement) {
  if (!condition) [[unlikely]]
    throw BugError("broken invariant: " + std::string(statement));
}

}  // namespace slime
