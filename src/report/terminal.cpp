#include "report/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace slime::report {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos ||
           value.find("utf-8") != value.npos;
  }
  return false;
}

/// Bytes of the escape sequence or character at the front of `text`; columns it takes in `columns`.
std::size_t next_piece(std::string_view text, int& columns) {
  if (text.starts_with("\x1b[")) {
    columns = 0;
    const std::size_t end = text.find_first_of("mKJABCDHl", 2);
    return end == text.npos ? text.size() : end + 1;
  }
  columns = 1;
  std::size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) ++bytes;
  return bytes;
}

}  // namespace

Terminal detect_terminal() {
  Terminal terminal;
  const std::string_view kind = environment("TERM");
  terminal.is_live = ::isatty(STDOUT_FILENO) == 1 && !kind.empty() && kind != "dumb";
  terminal.has_color = terminal.is_live && environment("NO_COLOR").empty();
  terminal.has_unicode = locale_is_utf8();
  terminal.stage = environment("SLIME_STAGE");
  return terminal;
}

int terminal_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::clamp<int>(size.ws_col, 40, 200);
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    int columns = 0;
    text.remove_prefix(next_piece(text, columns));
    width += columns;
  }
  return width;
}

std::string clip_to_width(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  std::string out;
  bool has_color = false;
  while (!text.empty()) {
    int columns = 0;
    const std::size_t bytes = next_piece(text, columns);
    if (columns > width) break;
    has_color |= columns == 0;
    width -= columns;
    out.append(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  if (has_color) out += "\x1b[0m";
  return out;
}

}  // namespace slime::report
