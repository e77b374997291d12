#include "help/wrapped.h"

#include <algorithm>
#include <cstddef>

namespace slime::help {
namespace {

constexpr int kMargin = 2;
constexpr int kGap = 2;
/// Below it meanings stand under their options.
constexpr int kNarrow = 64;
constexpr int kIndentOfNarrow = 6;

/// Columns of UTF-8 text.
int columns_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

}  // namespace

std::string wrapped(std::string_view text, int width, int indent, int column) {
  std::string out;
  int used = column;
  bool is_first = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const int size = columns_of(word);
    if (!is_first && used + 1 + size > width) {
      out += '\n';
      out.append(static_cast<std::size_t>(indent), ' ');
      used = indent;
      is_first = true;
    }
    if (!is_first) out += ' ';
    used += size + (is_first ? 0 : 1);
    out += word;
    is_first = false;
  }
  return out;
}

std::string in_columns(const std::vector<std::pair<std::string, std::string>>& rows, int width,
                       int widest_left) {
  int left = 0;
  for (const auto& [name, text] : rows)
    if (columns_of(name) <= widest_left) left = std::max(left, columns_of(name));
  const bool is_narrow = width < kNarrow;
  const int indent = is_narrow ? kIndentOfNarrow : kMargin + left + kGap;
  std::string out;
  for (const auto& [name, text] : rows) {
    out.append(kMargin, ' ');
    out += name;
    if (!text.empty()) {
      const int column = kMargin + columns_of(name);
      if (is_narrow || column + kGap > indent) {
        out += '\n';
        out.append(static_cast<std::size_t>(indent), ' ');
      } else {
        out.append(static_cast<std::size_t>(indent - column), ' ');
      }
      out += wrapped(text, width, indent, indent);
    }
    out += '\n';
  }
  return out;
}

}  // namespace slime::help
