#pragma once

/// The terminal as the program finds it: the only place that asks the system or the environment
/// about it.

#include <string>
#include <string_view>

namespace slime::report {

/// What can be shown on a stream.
struct Terminal {
  bool is_live = false;      // a person watches and lines can be redrawn
  bool has_color = false;    // off with NO_COLOR (no-color.org)
  bool has_unicode = false;  // the locale is UTF-8
  /// "1 of 2": a script starts several runs one after the other, and this is not the last (SLIME_STAGE).
  /// The run's end is one line then, not a table with what to do next.
  std::string stage = {};
};

/// Of standard output, from isatty, TERM, NO_COLOR and the locale variables.
Terminal detect_terminal();

/// Columns of standard output now, between 40 and 200; 80 when nobody knows. Asked at each redraw,
/// so that a resized window needs no signal.
int terminal_width();

/// Columns that UTF-8 `text` takes, colour sequences not counted; every character counts one.
int display_width(std::string_view text);

/// At most `width` columns of `text`; colour sequences are kept whole and closed.
std::string clip_to_width(std::string_view text, int width);

}  // namespace slime::report
