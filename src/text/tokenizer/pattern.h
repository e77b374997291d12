#pragma once

/// Pattern of Split and Replace: a literal string, or a regular expression (hand-written for the
/// known ones).

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/regex.h"
#include "text/tokenizer/word_splitter.h"

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

/// `text` with every match replaced by `content`. Throws ConfigError when the result would exceed
/// `limit_bytes`: a hostile file can chain replacements that each multiply the text.
std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content,
                        std::size_t limit_bytes);

/// The limit for what the steps of a file may together make of a text; the longest Unicode mapping
/// is 11-fold.
constexpr std::size_t growth_limit(std::size_t text_bytes) { return 32 * text_bytes + (64 << 10); }

}  // namespace slime::text
