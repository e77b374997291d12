#include <optional>

#include "reward/math_normal_form.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

/// Steps of spec 16.2 "mathd_equal"; nothing: normalisation fails, the text counts as it is.
using Maybe = std::optional<std::string>;

std::string without(std::string_view text, std::string_view what) {
  return replaced(text, what, "");
}

/// Step 3: "10\text{ cm}" -> "10".
Maybe without_unit(std::string text) {
  const std::vector<std::string_view> parts = split(text, "\\text{ ");
  if (parts.size() > 2) return std::nullopt;
  return std::string(parts.front());
}

/// Step 6: "\sqrt3" -> "\sqrt{3}".
Maybe with_root_braces(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, "\\sqrt");
  std::string out(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    if (part.empty()) return std::nullopt;
    out += "\\sqrt";
    if (part.front() == '{') {
      out += part;
    } else {
      const std::size_t bytes = point_bytes(part, 0);
      out.append("{").append(part.substr(0, bytes)).append("}").append(part.substr(bytes));
    }
  }
  return out;
}

/// Step 8: "\frac12" -> "\frac{1}{2}", "\frac1{72}" -> "\frac{1}{72}".
Maybe with_fraction_braces(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, "\\frac");
  std::string out(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    if (part.empty()) return std::nullopt;
    out += "\\frac";
    if (part.front() == '{') {
      out += part;
      continue;
    }
    const std::size_t first = point_bytes(part, 0);
    if (first == part.size()) return std::string(text);
    const std::size_t second = point_bytes(part, first);
    const std::string_view b = part.substr(first, second);
    out.append("{").append(part.substr(0, first)).append("}");
    if (b == "{") {
      out += b;
    } else {
      out.append("{").append(b).append("}");
    }
    out += part.substr(first + second);
  }
  return out;
}

bool is_canonical_integer(std::string_view text) {
  if (text == "0") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.front() != '0' &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Step 10: "3/4" -> "\frac{3}{4}".
std::string with_simple_fraction(std::string text) {
  const std::vector<std::string_view> parts = split(text, "/");
  if (parts.size() != 2 || !is_canonical_integer(parts[0]) || !is_canonical_integer(parts[1]))
    return text;
  return std::string("\\frac{").append(parts[0]).append("}{").append(parts[1]).append("}");
}

/// What an equation may define: a letter, perhaps with one more character, such as "x", "k ", "a'".
bool is_name(std::string_view text) { return !text.empty() && is_letter(text.front()); }

Maybe steps(std::string text, Grading grading) {
  for (const std::string_view removed : {"\n", "\\!"}) text = without(text, removed);
  text = replaced(text, "\\\\", "\\");
  text = replaced(text, "tfrac", "frac");
  text = replaced(text, "dfrac", "frac");
  for (const std::string_view removed : {"\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"})
    text = without(text, removed);

  Maybe next = without_unit(std::move(text));
  if (!next) return std::nullopt;
  text = without(*next, "\\%");
  text = replaced(text, " .", " 0.");
  text = replaced(text, "{.", "{0.");
  if (text.empty()) return text;
  if (text.front() == '.') text.insert(text.begin(), '0');
  if (const std::vector<std::string_view> sides = split(text, "=");
      sides.size() == 2 && count_points(sides[0]) <= 2 &&
      (grading == Grading::kOriginal || is_name(sides[0]))) {
    text = std::string(sides[1]);
  }
  if (!(next = with_root_braces(text))) return std::nullopt;
  text = without(*next, " ");
  if (!(next = with_fraction_braces(text))) return std::nullopt;
  if (*next == "0.5") return "\\frac{1}{2}";
  return with_simple_fraction(std::move(*next));
}

}  // namespace

std::string mathd_normal_form(std::string_view answer, Grading grading) {
  constexpr std::string_view kText = "\\text{";
  answer = stripped(answer);
  if (answer.starts_with(kText) && answer.ends_with('}') && answer.size() > kText.size() + 1 &&
      answer.find('\n') == std::string_view::npos) {
    answer = stripped(answer.substr(kText.size(), answer.size() - kText.size() - 1));
  }
  return steps(std::string(answer), grading).value_or(std::string(answer));
}

}  // namespace slime::reward
