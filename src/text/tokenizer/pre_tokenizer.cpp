#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

/// A piece of a word, and whether the pattern matched it.
struct Piece {
  Range range;
  bool is_match;
};

/// Matches and what lies between them.
void tile(uint32_t size, const std::vector<Range>& matches, bool invert,
          std::vector<Piece>& pieces) {
  pieces.clear();
  uint32_t done = 0;
  for (const Range& match : matches) {
    if (done < match.begin) pieces.push_back({{done, match.begin}, invert});
    pieces.push_back({match, !invert});
    done = match.end;
  }
  if (done < size) pieces.push_back({{done, size}, invert});
}

/// Joins pieces as `behavior` says and appends the words, moved by `offset`.
void join(const std::vector<Piece>& pieces, SplitBehavior behavior, uint32_t offset,
          std::vector<Range>& words) {
  const std::size_t first = words.size();
  const auto add = [&](const Range& range) {
    words.push_back({range.begin + offset, range.end + offset});
  };
  const bool forwards = behavior != SplitBehavior::kMergedWithNext;
  bool previous = false;  // was the piece before this one, in the direction we go, a match
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    const Piece& piece = pieces[forwards ? k : pieces.size() - 1 - k];
    const bool has_neighbour = words.size() > first;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (!piece.is_match) add(piece.range);
        break;
      case SplitBehavior::kIsolated:
        add(piece.range);
        break;
      case SplitBehavior::kContiguous:
        if (has_neighbour && piece.is_match == previous) {
          words.back().end = piece.range.end + offset;
        } else {
          add(piece.range);
        }
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (has_neighbour && piece.is_match && !previous) {
          words.back().end = piece.range.end + offset;
        } else {
          add(piece.range);
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (has_neighbour && piece.is_match && !previous) {
          words.back().begin = piece.range.begin + offset;
        } else {
          add(piece.range);
        }
        break;
    }
    previous = piece.is_match;
  }
  if (!forwards) std::reverse(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
}

/// join() for the common case: matches and what lies between them are words.
void isolate(uint32_t size, const std::vector<Range>& matches, uint32_t offset,
             std::vector<Range>& words) {
  uint32_t done = 0;
  for (const Range& match : matches) {
    if (done < match.begin) words.push_back({done + offset, match.begin + offset});
    words.push_back({match.begin + offset, match.end + offset});
    done = match.end;
  }
  if (done < size) words.push_back({done + offset, size + offset});
}

/// Each character for which `belongs` holds, as a match of its own.
template <typename Belongs>
auto each_char(Belongs belongs) {
  return [belongs](std::string_view word, std::vector<Range>& matches) {
    const CodePointTable& table = CodePointTable::instance();
    for (uint32_t i = 0; i < word.size();) {
      const DecodedChar c = decode_char(word.data() + i);
      if (belongs(table[c.code_point])) matches.push_back({i, i + c.length});
      i += c.length;
    }
  };
}

/// \w+|[^\w\s]+
void find_word_runs(std::string_view word, std::vector<Range>& matches) {
  const CodePointTable& table = CodePointTable::instance();
  int last_kind = 0;
  for (uint32_t i = 0; i < word.size();) {
    const DecodedChar c = decode_char(word.data() + i);
    const CodePointProperties properties = table[c.code_point];
    const int kind = properties.is_word() ? 1 : properties.is_space() ? 0 : 2;
    if (kind != 0 && kind == last_kind) {
      matches.back().end = i + c.length;
    } else if (kind != 0) {
      matches.push_back({i, i + c.length});
    }
    last_kind = kind;
    i += c.length;
  }
}

}  // namespace

template <typename FindMatches>
void Words::cut_each(FindMatches find_matches, SplitBehavior behavior, bool invert) {
  std::vector<Range> words, matches;
  std::vector<Piece> pieces;
  words.reserve(ranges_.size() + text_.size() / 4);
  for (const Range& range : ranges_) {
    matches.clear();
    find_matches((*this)[range], matches);
    const uint32_t size = range.end - range.begin;
    if (behavior == SplitBehavior::kIsolated) {
      isolate(size, matches, range.begin, words);
    } else {
      tile(size, matches, invert, pieces);
      join(pieces, behavior, range.begin, words);
    }
  }
  std::erase_if(words, [](const Range& word) { return word.begin == word.end; });  // empty matches
  ranges_ = std::move(words);
}

template <typename Rewrite>
void Words::rewrite_each(Rewrite rewrite) {
  std::string text;
  text.reserve(text_.size() + text_.size() / 2);
  for (Range& range : ranges_) {
    const auto begin = static_cast<uint32_t>(text.size());
    rewrite((*this)[range], range, text);
    range = {begin, static_cast<uint32_t>(text.size())};
  }
  if (text.size() > UINT32_MAX / 2)
    throw ConfigError("the pre-tokenizer makes the text longer than 2 GiB");
  storage_ = std::move(text);
  text_ = storage_;
}

void Words::apply(const PreTokenizerStep& step) {
  std::visit([this](const auto& kind) { cut(kind); }, step);
}

void Words::cut(const Split& step) {
  cut_each([&](std::string_view word,
               std::vector<Range>& matches) { step.pattern.find_all(word, matches); },
           step.behavior, step.invert);
}

void Words::cut(const Digits& step) {
  cut_each(each_char([](CodePointProperties c) { return c.is_numeric(); }),
           step.individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false);
}

void Words::cut(const Punctuation& step) {
  cut_each(each_char([](CodePointProperties c) { return c.is_punctuation(); }), step.behavior,
           false);
}

void Words::cut(const Whitespace&) { cut_each(find_word_runs, SplitBehavior::kRemoved, true); }

void Words::cut(const WhitespaceSplit&) {
  cut_each(each_char([](CodePointProperties c) { return c.is_space(); }), SplitBehavior::kRemoved,
           false);
}

void Words::cut(const Metaspace& step) {
  const bool begins_input = begins_input_;
  rewrite_each([&](std::string_view word, const Range& range, std::string& out) {
    const bool may_prepend =
        step.prepend == Metaspace::Prepend::kAlways ||
        (step.prepend == Metaspace::Prepend::kFirst && begins_input && range.begin == 0);
    if (may_prepend && !word.starts_with(' ') && !word.starts_with(step.replacement))
      out += step.replacement;
    for (const char c : word) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  });
  if (!step.split) return;
  cut_each(
      [&](std::string_view word, std::vector<Range>& matches) {
        const std::size_t size = step.replacement.size();
        for (std::size_t at = word.find(step.replacement); at != word.npos;
             at = word.find(step.replacement, at + size)) {
          matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + size)});
        }
      },
      SplitBehavior::kMergedWithNext, false);
}

void Words::cut(const ByteLevel& step) {
  if (step.add_prefix_space) {
    rewrite_each([](std::string_view word, const Range&, std::string& out) {
      if (!word.starts_with(' ')) out += ' ';
      out += word;
    });
  }
  if (step.use_regex) {
    cut_each([](std::string_view word,
                std::vector<Range>& matches) { WordSplitter::gpt2().find_all(word, matches); },
             SplitBehavior::kIsolated, false);
  }
  if (step.spell_bytes) {
    rewrite_each(
        [](std::string_view word, const Range&, std::string& out) { append_spelling(word, out); });
  }
}

}  // namespace slime::text
