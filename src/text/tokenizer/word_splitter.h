#pragma once

/// Hand-written matchers for the regular expressions by which published models cut text into words.
/// They are faster than the expressions and use our own Unicode tables, so ids do not depend on the
/// PCRE2 of the machine.
///
/// Recognised by exact text; the expressions, with the alternatives that each function cites, are
/// in word_splitter.cpp.

#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace slime::text {

class WordSplitter final {
 public:
  // Patterns that do not stand in the model's own files (text/tokenizer/tiktoken_file.h).
  static const std::string_view kCl100k;
  static const std::string_view kQwen2;
  static const std::string_view kKimi;

  /// The matcher for this pattern, or nothing when we have none. The result is static.
  static const WordSplitter* find(std::string_view pattern);
  /// The pattern of GPT-2, which the ByteLevel step uses by itself.
  static const WordSplitter& gpt2();

  /// For tests: every pattern that find() knows.
  static std::vector<std::string_view> known_patterns();

  /// Appends the same matches as the regular expression. `text` is valid UTF-8 below 2 GiB.
  void find_all(std::string_view text, std::vector<Range>& matches) const {
    find_all_(text, matches);
  }

 private:
  using FindAll = void (*)(std::string_view text, std::vector<Range>& matches);
  constexpr WordSplitter(std::string_view pattern, FindAll find_all)
      : pattern_(pattern), find_all_(find_all) {}
  static const std::vector<WordSplitter>& all();

  std::string_view pattern_;
  FindAll find_all_;
};

}  // namespace slime::text
