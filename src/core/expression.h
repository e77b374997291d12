#pragma once

/// Regular expressions of a user or a client: of Python's and ECMAScript's common dialect, over short texts such as names
/// of modules. Matched by PCRE2 with bounded steps, since a hostile one may backtrack for ever.

#include <memory>
#include <string>
#include <string_view>

namespace slime {

/// Not for several threads at once.
class Expression final {
 public:
  /// `what` begins messages: "rank_pattern". Throws ConfigError for what is no regular expression.
  Expression(std::string_view text, std::string_view what);
  ~Expression();
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;

  /// Whether it is the whole text. Throws ConfigError where that takes more steps than it may.
  bool is_whole(std::string_view text) const;
  /// The same for a part of the text.
  bool is_in(std::string_view text) const;
  /// The text of its first group, where it is the whole text; empty where it is not.
  std::string first_group(std::string_view text) const;

 private:
  struct Compiled;
  bool matches(std::string_view text, unsigned options) const;

  std::unique_ptr<Compiled> compiled_;
};

}  // namespace slime
