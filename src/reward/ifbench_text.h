#pragma once

/// Text helpers of the IFBench checks: words, lines, sentences and tokens of a response, and the
/// parameters of an instruction.
///
/// Sentences and tokens follow the rules of NLTK's Punkt and Treebank tokenizers as far as rules
/// go: Punkt also has statistics of English abbreviations, in whose place stands a list.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::reward::ifbench {

using Words = std::vector<std::string>;

bool is_space(char c);        // of ASCII
bool is_punctuation(char c);  // of ASCII

/// The longest runs of characters for which `is_part` holds.
template <typename IsPart>
Words runs_of(std::string_view text, IsPart is_part) {
  Words runs;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_part(text[end])) ++end;
    if (end > i) runs.emplace_back(text.substr(i, end - i));
    i = std::max(end, i + 1);
  }
  return runs;
}

Words words_of(std::string_view text);   // between white space
Words word_runs(std::string_view text);  // \w+
Words lines_of(std::string_view text);
Words filled_lines(std::string_view text);  // those that are not blank
/// Without blanks at their ends. "He met Dr. Lee. So?" is two.
Words sentences_of(std::string_view text);
/// "Don't stop, Ann." is Do, n't, stop, ",", Ann, ".".
Words tokens_of(std::string_view text);

std::string without_punctuation(std::string_view text);
/// Without punctuation and blanks at the ends.
std::string_view strip_punctuation(std::string_view text);
int64_t count_of(std::string_view text, std::string_view part);
bool contains(std::string_view text, std::string_view part);
/// \bword\b
bool has_whole_word(std::string_view text, std::string_view word);
/// In lower case.
std::string first_character(std::string_view word);
/// str.isupper and str.islower: some letter has a case, and all that have one have this one.
bool is_all_upper(std::string_view text);
bool is_all_lower(std::string_view text);

/// Reads the parameters of an instruction. All throw ConfigError naming the parameter.
class Arguments {
 public:
  explicit Arguments(const json::object& map) : map_(map) {}
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  std::string text(std::string_view key) const;
  Words texts(std::string_view key) const;
  /// `count` against `threshold` as "relation" says: "less than" or "at least".
  bool holds(double count, double threshold, std::string_view relation_key) const;

 private:
  const json::value& find(std::string_view key) const;
  const json::object& map_;
};

}  // namespace slime::reward::ifbench
