#include "reward/label.h"

#include <fmt/format.h>

#include "reward/python_text.h"

namespace slime::reward {

std::string shown_label(const json::value& label) {
  constexpr std::size_t kMostShown = 80;
  std::string text = json_text(label);
  if (count_points(text) <= kMostShown) return text;
  text.resize(text::python::byte_offset(text, kMostShown));
  return text + "...";
}

Expected<std::string> label_text(const json::value& label, std::string_view rule) {
  if (label.is_null()) return failure(fmt::format("{}: the label is missing", rule));
  if (!label.is_string() && !label.is_number() && big_integer_digits(label) == nullptr) {
    return failure(fmt::format("{}: the label should be a string or a number, it is {}", rule,
                               shown_label(label)));
  }
  std::string text = to_python_string(label);
  if (stripped(text).empty()) return failure(fmt::format("{}: the label is empty", rule));
  return text;
}

}  // namespace slime::reward
