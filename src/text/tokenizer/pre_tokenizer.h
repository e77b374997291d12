#pragma once

/// The "pre_tokenizer" of tokenizer.json: cuts a text into words, which the model then encodes one
/// by one. Nested sequences arrive flattened; each step cuts the words of the step before, and some
/// rewrite them.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pattern.h"

namespace slime::text {

/// What happens to the matches of a pattern: dropped, words of their own, joined with the word
/// before or after, or one word for each run of matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct Split {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what does not match is the match
};
struct Digits {
  bool individual = false;
};
struct Punctuation {
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
struct Whitespace {};       // \w+|[^\w\s]+
struct WhitespaceSplit {};  // runs without white space
struct Metaspace {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string replacement = "\u2581";  // one character
  Prepend prepend = Prepend::kAlways;  // a replacement before the word, unless it begins with one
  bool split = true;                   // before each replacement
};
/// Cuts by GPT-2's pattern when use_regex. With spell_bytes each byte becomes its printable
/// stand-in (text/tokenizer/byte_alphabet.h); as the last step that is left to the model, which
/// then works on bytes.
struct ByteLevel {
  bool add_prefix_space = false;
  bool use_regex = true;
  bool spell_bytes = false;
};
using PreTokenizerStep =
    std::variant<Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, ByteLevel>;

/// Words of a text: ranges in order, not empty. The text is the caller's until a step rewrites it.
class Words final {
 public:
  /// One word. `begins_input`: `text` stands at the very start of what is encoded (Metaspace's
  /// kFirst).
  Words(std::string_view text, bool begins_input)
      : text_(text),
        begins_input_(begins_input),
        ranges_{{0, static_cast<uint32_t>(text.size())}} {}

  Words(const Words&) = delete;  // text_ may point into storage_
  Words& operator=(const Words&) = delete;

  void apply(const PreTokenizerStep& step);

  const std::vector<Range>& ranges() const { return ranges_; }
  std::string_view operator[](const Range& range) const {
    return text_.substr(range.begin, range.end - range.begin);
  }

 private:
  void cut(const Split& step);
  void cut(const Digits& step);
  void cut(const Punctuation& step);
  void cut(const Whitespace& step);
  void cut(const WhitespaceSplit& step);
  void cut(const Metaspace& step);
  void cut(const ByteLevel& step);

  /// Replaces each word by what `behavior` makes of the matches that `find_matches(word, matches)`
  /// appends.
  template <typename FindMatches>
  void cut_each(FindMatches find_matches, SplitBehavior behavior, bool invert);
  /// Replaces each word's text by what `rewrite(word, range, out)` appends to `out`.
  template <typename Rewrite>
  void rewrite_each(Rewrite rewrite);

  std::string_view text_;
  std::string storage_;  // what text_ points to after a rewrite
  bool begins_input_;
  std::vector<Range> ranges_;
};

}  // namespace slime::text
