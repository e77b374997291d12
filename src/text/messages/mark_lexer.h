#pragma once

/// Incremental lexer of a model's output: runs of text and marks, at any split of the output the
/// same.
///
/// A trailing piece that could begin a mark is held back until more text decides it. The text stays
/// here until it is forgotten, so a reader may go back to an earlier place and read it again.
/// Places are bytes from the beginning of the output.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "core/sample.h"
#include "text/messages/mark_set.h"

namespace slime::text {

class MarkLexer final {
 public:
  /// `marks` outlives the object.
  explicit MarkLexer(const MarkSet& marks) : marks_(&marks) {}

  struct Item {
    uint64_t begin = 0;
    uint64_t end = 0;
    const Mark* mark = nullptr;  // null: a run of text
    bool is_sampled = false;     // the mark has a special token, which was sampled
    bool is_text() const { return mark == nullptr; }
  };

  /// Text, in which all marks are looked for.
  void feed(std::string_view text);
  /// A token with the text that it released. A special token that belongs to marks counts as
  /// itself, whether or not the text has its spelling; the text of another one has no such marks.
  void feed(TokenId id, std::string_view text);
  /// The output has ended: nothing is held back any more.
  void end();

  /// What stands at the cursor. Nothing when more text is needed.
  std::optional<Item> peek() const;
  void move_to(uint64_t place);
  uint64_t cursor() const { return cursor_; }
  /// The end of all text that was fed.
  uint64_t fed() const { return base_ + text_.size(); }

  /// From here on more text could make marks.
  uint64_t undecided() const { return lexed_; }

  std::string_view text(uint64_t begin, uint64_t end) const {
    return std::string_view(text_).substr(begin - base_, end - begin);
  }
  std::string_view text(const Item& item) const { return text(item.begin, item.end); }
  /// The text in front of `place` is needed no more.
  void forget(uint64_t place);

 private:
  struct Found {
    uint64_t begin;
    uint64_t end;
    const Mark* mark;
    bool is_sampled;
  };
  struct Sampled {
    uint64_t begin;
    uint64_t end;
    MarkSet::Symbol symbol;
  };
  void lex();
  /// The longest mark at `place`; nothing undecided there: false.
  bool match(uint64_t place, std::size_t sampled, Found& found) const;

  const MarkSet* marks_;
  std::string text_;  // from base_ on
  uint64_t base_ = 0;
  uint64_t lexed_ = 0;
  uint64_t cursor_ = 0;
  std::deque<Found> found_;
  std::size_t next_found_ = 0;   // the first one at or after the cursor
  std::deque<Sampled> sampled_;  // special tokens from lexed_ on
  bool is_ended_ = false;
};

}  // namespace slime::text
