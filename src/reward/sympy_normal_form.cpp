#include <algorithm>
#include <cmath>
#include <optional>

#include "reward/latex_to_text.h"
#include "reward/math_normal_form.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr double kIntegerTolerance = 1e-7;
constexpr double kRelativeTolerance = 1e-15;  // of a decimal that is written out

/// The original takes all that is smaller than 1e-7 for 0; strictly the tolerance is relative.
bool is_nearly_integer(double value, Grading grading) {
  const double distance = std::abs(value - std::nearbyint(value));
  const double tolerance = grading == Grading::kOriginal
                               ? kIntegerTolerance
                               : kRelativeTolerance * std::abs(std::nearbyint(value));
  return std::isfinite(value) && distance <= tolerance;
}

/// `\text{...}` around everything, its content on one line.
std::string_view unwrapped_text(std::string_view text) {
  constexpr std::string_view kText = "\\text{";
  const std::string_view line = text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
  if (!line.starts_with(kText) || !line.ends_with('}') || line.size() < kText.size() + 2 ||
      line.find('\n') != std::string_view::npos) {
    return text;
  }
  return line.substr(kText.size(), line.size() - kText.size() - 1);
}

/// Deletes `unit`, an optional "es", an optional "s", blanks and an optional ^digits, wherever it
/// occurs; strictly, where it is a word.
std::string without_unit(std::string_view text, std::string_view unit, Grading grading) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t found; (found = text.find(unit, begin)) != std::string_view::npos;) {
    std::size_t end = found + unit.size();
    if (text.substr(end).starts_with("es")) end += 2;
    if (end < text.size() && text[end] == 's') ++end;
    const bool is_word = (found == 0 || !is_letter(text[found - 1])) &&
                         (end == text.size() || !is_letter(text[end]));
    if (grading == Grading::kStrict && !is_word) {
      out.append(text, begin, end - begin);
      begin = end;
      continue;
    }
    out.append(text, begin, found - begin);
    while (end < text.size() && text[end] == ' ') ++end;
    std::size_t digits = end + 1;
    while (end < text.size() && text[end] == '^' && digits < text.size() && is_digit(text[digits]))
      ++digits;
    begin = digits > end + 1 ? digits : end;
  }
  return out.append(text, begin);
}

/// Deletes `prefix`, then blanks, then `suffix`.
std::string without_spaced(std::string_view text, std::string_view prefix,
                           std::string_view suffix) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t i = 0; (i = text.find(prefix, i)) != std::string_view::npos;) {
    const std::size_t end = text.find_first_not_of(' ', i + prefix.size());
    if (end != std::string_view::npos && text.substr(end).starts_with(suffix)) {
      out.append(text, begin, i - begin);
      begin = i = end + suffix.size();
    } else {
      i += prefix.size();
    }
  }
  return out.append(text, begin);
}

/// Deletes the blanks after each `prefix`, and `prefix` too unless it is kept.
std::string without_blanks_after(std::string_view text, std::string_view prefix,
                                 bool keeps_prefix) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t found; (found = text.find(prefix, begin)) != std::string_view::npos;) {
    out.append(text, begin, found - begin + (keeps_prefix ? prefix.size() : 0));
    begin = std::min(text.find_first_not_of(' ', found + prefix.size()), text.size());
  }
  return out.append(text, begin);
}

/// "7 3/4" -> "7+3/4". A digit takes part in one junction only.
std::string with_joined_digits(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    out += text[i];
    if (is_digit(text[i]) && i + 1 < text.size() && text[i + 1] == ' ') {
      const std::size_t next = text.find_first_not_of(' ', i + 1);
      if (next != std::string_view::npos && is_digit(text[next])) {
        out += '+';
        out += text[next];
        i = next + 1;
        continue;
      }
    }
    ++i;
  }
  return out;
}

/// "1,234,567": commas divide all of the digits into groups of three.
bool has_grouped_digits(std::string_view text) {
  const std::vector<std::string_view> groups = split(text, ",");
  const auto is_number = [](std::string_view group) {
    return !group.empty() && std::all_of(group.begin(), group.end(), is_digit);
  };
  return groups.size() > 1 && groups.front().size() <= 3 && is_number(groups.front()) &&
         std::all_of(groups.begin() + 1, groups.end(),
                     [&](std::string_view group) { return group.size() == 3 && is_number(group); });
}

/// The integer that the text is, with all its digits: "+007" -> "7", "1,234" -> "1234"; nothing for
/// other texts.
std::optional<std::string> exact_integer(std::string_view text) {
  text = stripped(text);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string plain = replaced(text, ",", "");
  if (has_grouped_digits(text)) text = plain;
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  if (text.empty()) return "0";
  return std::string(is_negative ? "-" : "").append(text);
}

/// `text` is an integer up to rounding.
std::string integer_form(std::string_view text, double value, Grading grading) {
  const std::optional<std::string> exact =
      grading == Grading::kStrict ? exact_integer(text) : std::nullopt;
  return exact ? *exact : to_integer_string(value);
}

}  // namespace

std::string without_thousands_commas(std::string_view text) {
  std::string current(text);
  while (true) {
    std::string next;
    const auto digit_at = [&](std::size_t i) { return i < current.size() && is_digit(current[i]); };
    for (std::size_t i = 0; i < current.size();) {
      if (digit_at(i) && i + 1 < current.size() && current[i + 1] == ',' && digit_at(i + 2) &&
          digit_at(i + 3) && digit_at(i + 4) && !digit_at(i + 5)) {
        next += current[i];
        next.append(current, i + 2, 3);
        i += 5;
        if (i < current.size()) next += current[i++];
      } else {
        next += current[i++];
      }
    }
    if (next == current) return current;
    current = std::move(next);
  }
}

bool is_integer_text(std::string_view text, Grading grading) {
  const std::optional<double> value = to_float(without_thousands_commas(text));
  return value && is_nearly_integer(*value, grading);
}

std::string sympy_normal_form(std::string_view answer, Grading grading) {
  std::string text(unwrapped_text(answer));
  text = replaced(text, "\\%", "%");
  text = replaced(text, "\\$", "$");
  text = replaced(text, "$", "");
  text = replaced(text, "%", "");
  text = replaced(text, " or ", " , ");
  text = replaced(text, " and ", " , ");
  text = replaced(text, "million", "*10^6");
  text = replaced(text, "billion", "*10^9");
  text = replaced(text, "trillion", "*10^12");
  for (const std::string_view unit :
       {"degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week",
        "month", "year", "foot", "feet", "inch", "yard"}) {
    text = without_unit(text, unit, grading);
  }
  text = without_spaced(text, "^", "\\circ");
  if (text.starts_with('{') && text.ends_with('}'))
    text = text.size() < 2 ? "" : text.substr(1, text.size() - 2);
  text = without_blanks_after(text, ",\\!", false);
  if (const std::optional<double> value = to_float(text);
      value && is_nearly_integer(*value, grading)) {
    text = integer_form(text, std::nearbyint(*value), grading);
  }
  if (text.find('\\') != std::string::npos) text = latex_to_text(text).value_or(text);
  text = without_blanks_after(text, "-", true);
  text = with_joined_digits(text);
  for (const std::string_view removed : {" ", "{", "}"}) text = replaced(text, removed, "");
  text = to_lower(text);
  if (const auto exact = grading == Grading::kStrict ? exact_integer(text) : std::nullopt) {
    text = *exact;
  } else if (is_integer_text(text, grading)) {
    const std::string digits = replaced(text, ",", "");
    if (const std::optional<double> value = to_float(digits))
      text = integer_form(digits, *value, grading);
  }
  return text;
}

}  // namespace slime::reward
