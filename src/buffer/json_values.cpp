#include "buffer/json_values.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::buffer {
namespace {

/// A row of 64 MiB is a file of another form.
constexpr std::size_t kValueLimitBytes = std::size_t{64} << 20;

}  // namespace

JsonValues::JsonValues(const std::filesystem::path& path) : path_(path), bytes_(path) {}

void JsonValues::refuse(const std::string& what) const {
  throw ConfigError(fmt::format("{}, row {}: {}", path_.string(), num_values_, what));
}

std::optional<char> JsonValues::peek() {
  if (position_ == block_.size()) {
    bytes_.next(block_);
    position_ = 0;
    if (block_.empty()) return std::nullopt;
  }
  return block_[position_];
}

char JsonValues::take() { return block_[position_++]; }

void JsonValues::skip_blanks() {
  for (auto c = peek(); c && (*c == ' ' || *c == '\t' || *c == '\n' || *c == '\r'); c = peek())
    take();
}

/// An object, or what else an element may be by mistake, up to where it ends.
std::string JsonValues::take_value() {
  std::string value;
  int depth = 0;
  bool is_text = false, is_escaped = false;
  while (true) {
    const auto c = peek();
    if (!c) refuse("the file ends within a value");
    if (depth == 0 && !is_text && !value.empty() &&
        (*c == ',' || *c == ']' || *c == '}' || *c == '\n'))
      return value;
    value += take();
    if (value.size() > kValueLimitBytes)
      refuse(fmt::format("longer than {} MiB", kValueLimitBytes >> 20));
    if (is_text) {
      if (is_escaped)
        is_escaped = false;
      else if (*c == '\\')
        is_escaped = true;
      else if (*c == '"')
        is_text = false;
    } else if (*c == '"') {
      is_text = true;
    } else if (*c == '{' || *c == '[') {
      ++depth;
    } else if (*c == '}' || *c == ']') {
      if (--depth <= 0) return value;
    }
  }
}

std::optional<std::string> JsonValues::next() {
  if (is_over_) return std::nullopt;
  if (!has_begun_) {
    has_begun_ = true;
    for (const char mark : std::string_view("\xef\xbb\xbf"))  // a byte-order mark
      if (peek() == mark) take();
    skip_blanks();
    const auto first = peek();
    is_list_ = first == '[';
    if (first && !is_list_ && first != '{')
      refuse("a .json file should be a list of objects, or objects one after the other");
    if (is_list_) take();
  }
  skip_blanks();
  auto c = peek();
  if (is_list_) {
    if (c == ',' && num_values_ > 0) {
      take();
      skip_blanks();
      c = peek();
      if (c == ']') refuse("a comma before the end of the list");
    } else if (c && c != ']' && num_values_ > 0) {
      refuse("no comma between the elements of the list");
    }
    if (!c) refuse("the list does not end");
    if (c == ']') {
      take();
      skip_blanks();
      if (peek()) refuse("something follows the list");
      is_over_ = true;
      return std::nullopt;
    }
  } else if (!c) {
    is_over_ = true;
    return std::nullopt;
  } else if (c != '{') {
    refuse("should be an object");
  }
  std::string value = take_value();
  ++num_values_;
  return value;
}

}  // namespace slime::buffer
