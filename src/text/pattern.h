#pragma once

/// What Split and Replace look for: a literal string, or a regular expression (hand-written where
/// we know it).

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"
#include "text/word_splitter.h"

namespace slime::text {

class Pattern final {
 public:
  /// `text` must not be empty.
  static Pattern literal(std::string text);
  /// Oniguruma's dialect; fails as Regex::compile.
  static Expected<Pattern> regex(std::string_view pattern);

  /// Appends all matches in order, none overlapping.
  void find_all(std::string_view text, std::vector<Range>& matches) const;

 private:
  using Kind = std::variant<std::string, Regex, const WordSplitter*>;
  explicit Pattern(Kind kind) : kind_(std::move(kind)) {}
  Kind kind_;
};

/// `text` with every match replaced by `content`.
std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content);

}  // namespace slime::text
