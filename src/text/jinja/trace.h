#pragma once

/// Trace of one rendering: the list element (a message) that each piece of the text was written
/// for, and what {% generation %} encloses.
///
/// A piece belongs to the element whose turn of a loop wrote it, whatever the text says: a message
/// that quotes the marks of a conversation changes nothing.
///
///   {% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}!
///   messages user "a", assistant "b"  ->  "<user>a<assistant>b!"
///   pieces  [0, 7) of 0   [7, 19) of 1   [19, 20) of none

#include <cstddef>
#include <vector>

namespace slime::text::jinja {

struct Dict;

struct Trace {
  static constexpr int kNone = -1;

  struct Piece {
    std::size_t begin = 0;  // bytes of the text
    std::size_t end = 0;
    int subject = kNone;  // place in `subjects`
  };

  /// The elements that are followed, by identity: given before the rendering.
  std::vector<const Dict*> subjects;
  /// In order, without gaps; neighbours have different subjects.
  std::vector<Piece> pieces;
  /// In order; those inside macros and block assignments are not seen.
  std::vector<Piece> generations;
};

}  // namespace slime::text::jinja
