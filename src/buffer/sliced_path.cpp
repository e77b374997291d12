#include "buffer/sliced_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace slime::buffer {
namespace {

/// Empty, or an optional minus and digits.
bool looks_like_a_position(std::string_view text) {
  if (text.empty()) return true;
  if (text.front() == '-') text.remove_prefix(1);
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<int64_t> to_position(std::string_view text, std::string_view whole) {
  if (text.empty()) return std::nullopt;
  int64_t position = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), position).ec != std::errc()) {
    throw ConfigError(fmt::format("{}: the slice position {} is out of range", whole, text));
  }
  return position;
}

}  // namespace

std::pair<int64_t, int64_t> SlicedPath::rows(int64_t num_rows) const {
  const auto resolve = [num_rows](int64_t position) {
    if (position < 0) position += std::max(num_rows, -position);  // at least 0
    return std::min(position, num_rows);
  };
  const int64_t first = resolve(begin.value_or(0));
  const int64_t last = end ? resolve(*end) : num_rows;
  return {first, std::max(first, last)};
}

SlicedPath parse_sliced_path(std::string_view text) {
  const std::size_t marker = text.rfind("@[");
  if (marker == std::string_view::npos || !text.ends_with(']'))
    return {std::filesystem::path(text), {}, {}};
  const std::string_view inside = text.substr(marker + 2, text.size() - marker - 3);
  const std::size_t colon = inside.find(':');
  if (colon == std::string_view::npos || !looks_like_a_position(inside.substr(0, colon)) ||
      !looks_like_a_position(inside.substr(colon + 1))) {
    return {std::filesystem::path(text), {}, {}};
  }
  return {std::filesystem::path(text.substr(0, marker)), to_position(inside.substr(0, colon), text),
          to_position(inside.substr(colon + 1), text)};
}

}  // namespace slime::buffer
