#include <algorithm>
#include <array>
#include <cmath>

#include "reward/boxed.h"
#include "reward/label.h"
#include "reward/python_text.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

constexpr std::size_t kCharactersRead = 300;  // of the end of a response
constexpr std::size_t kBoxCharactersRead = 100;
constexpr std::string_view kNoAnswer = "[INVALID]";

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kSubstitutions{
    {{"an ", ""},
     {"a ", ""},
     {".$", "$"},
     {"\\$", ""},
     {"\\ ", ""},
     {" ", ""},
     {"mbox", "text"},
     {",\\text{and}", ","},
     {"\\text{and}", ","},
     {"\\text{m}", "\\text{}"}}};

/// "childrentickets" is one word in the original, where a comma is missing; scores depend on it.
constexpr auto kDeleted = std::to_array<std::string_view>(
    {"square",     "ways",       "integers",     "dollars",      "mph",
     "inches",     "hours",      "km",           "units",        "\\ldots",
     "sue",        "points",     "feet",         "minutes",      "digits",
     "cents",      "degrees",    "cm",           "gm",           "pounds",
     "meters",     "meals",      "edges",        "students",     "childrentickets",
     "multiples",  "\\text{s}",  "\\text{.}",    "\\text{\ns}",  "\\text{}^2",
     "\\text{}^3", "\\text{\n}", "\\text{}",     "\\mathrm{th}", "^\\circ",
     "^{\\circ}",  "\\;",        ",\\!",         "{,}",          "\"",
     "\\dots",     "<|im_end|>", "<|endoftext|>"});

/// Per line: what stands around the first pair of dollar signs is dropped.
std::string keep_math(std::string_view text) {
  std::string out;
  const std::vector<std::string_view> lines = split(text, "\n");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (i > 0) out += '\n';
    const std::size_t first = line.find('$');
    const std::size_t second = first == std::string_view::npos ? first : line.find('$', first + 1);
    out += second == std::string_view::npos ? line : line.substr(first, second + 1 - first);
  }
  return out;
}

/// `opening`, the shortest content without a line end, `}`: keeps the content.
std::string unwrapped(std::string_view text, std::string_view opening) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t found; (found = text.find(opening, begin)) != std::string_view::npos;) {
    const std::size_t content = found + opening.size();
    const std::size_t end = text.find_first_of("}\n", content);
    if (end == std::string_view::npos) break;
    const bool is_closed = text[end] == '}';
    out.append(text, begin, found - begin);
    out.append(text, is_closed ? content : found, end - (is_closed ? content : found));
    begin = end + (is_closed ? 1 : 0);
  }
  return out.append(text, begin);
}

/// The same up to the last `}` of the line.
std::string unwrapped_longest(std::string_view text, std::string_view opening) {
  std::string out;
  const std::vector<std::string_view> lines = split(text, "\n");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (i > 0) out += '\n';
    const std::size_t found = line.find(opening);
    const std::size_t last = line.rfind('}');
    if (found == std::string_view::npos || last == std::string_view::npos ||
        last < found + opening.size()) {
      out += line;
      continue;
    }
    const std::size_t content = found + opening.size();
    out.append(line.substr(0, found))
        .append(line.substr(content, last - content))
        .append(line.substr(last + 1));
  }
  return out;
}

/// "frac12" -> "frac{1}{2}": a character that is no brace, then any that is no line end.
std::string with_fraction_braces(std::string_view text) {
  constexpr std::string_view kFrac = "frac";
  std::string out;
  std::size_t begin = 0;
  for (std::size_t found; (found = text.find(kFrac, begin)) != std::string_view::npos;) {
    const std::size_t a = found + kFrac.size();
    const std::size_t b = a < text.size() ? a + point_bytes(text, a) : text.size();
    out.append(text, begin, a - begin);
    begin = a;
    if (b >= text.size() || text[a] == '{' || text[b] == '\n') continue;
    const std::size_t end = b + point_bytes(text, b);
    out.append("{")
        .append(text.substr(a, b - a))
        .append("}{")
        .append(text.substr(b, end - b))
        .append("}");
    begin = end;
  }
  return out.append(text, begin);
}

/// "sqrt2" -> "sqrt{2}".
std::string with_root_braces(std::string_view text) {
  constexpr std::string_view kRoot = "sqrt";
  std::string out;
  std::size_t begin = 0;
  for (std::size_t found; (found = text.find(kRoot, begin)) != std::string_view::npos;) {
    const std::size_t a = found + kRoot.size();
    out.append(text, begin, a - begin);
    begin = a;
    if (a >= text.size() || text[a] == '{') continue;
    const std::size_t end = a + point_bytes(text, a);
    out.append("{").append(text.substr(a, end - a)).append("}");
    begin = end;
  }
  return out.append(text, begin);
}

/// What follows "answer", blanks, ":", blanks at text[begin], to the end of its line; nothing when
/// that does not match there.
std::optional<std::string_view> answer_at(std::string_view text, std::size_t begin) {
  const auto skip_blanks = [&](std::size_t i) {
    while (i < text.size() && is_blank(text[i])) ++i;
    return i;
  };
  std::size_t i = skip_blanks(begin + std::string_view("answer").size());
  if (i >= text.size() || text[i] != ':') return std::nullopt;
  const std::size_t after_colon = i + 1;
  i = skip_blanks(after_colon);
  // Only blanks follow: the last of them that is no line end is the answer.
  while (i == text.size() || text[i] == '\n') {
    if (i == after_colon) return std::nullopt;
    --i;
  }
  return text.substr(i, std::min(text.find('\n', i), text.size()) - i);
}

/// The last "Answer: ..." of the text.
std::string_view stated_answer(std::string_view text) {
  std::string folded(text);  // ASCII only, so that positions stay
  std::transform(folded.begin(), folded.end(), folded.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  std::string_view answer = kNoAnswer;
  for (std::size_t i = 0; (i = folded.find("answer", i)) != std::string::npos;) {
    const std::optional<std::string_view> match = answer_at(text, i);
    if (match) {
      answer = *match;
      i = static_cast<std::size_t>(match->data() - text.data()) + match->size();
    } else {
      ++i;
    }
  }
  return answer;
}

/// Removes what separates thousands: "1,234", "1{,}234", "1\\,234", "1 234".
std::string with_joined_thousands(std::string_view text) {
  constexpr auto kSeparators =
      std::to_array<std::string_view>({",\\!", "{,}", "\\,", "\\ ", ",", " "});
  const auto digits_at = [&](std::size_t i) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789", i), text.size());
    return end - std::min(i, end);
  };
  /// Bytes of a separator at `i` that exactly three digits follow; 0 when there is none.
  const auto separator_at = [&](std::size_t i) -> std::size_t {
    for (const std::string_view separator : kSeparators) {
      if (text.substr(i).starts_with(separator) && digits_at(i + separator.size()) == 3)
        return separator.size();
    }
    return 0;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t num_digits = digits_at(i);
    if (num_digits == 0) {
      out += text[i++];
      continue;
    }
    out.append(text.substr(i, num_digits));
    i += num_digits;
    while (num_digits <= 3 && i < text.size()) {
      const std::size_t skipped = separator_at(i);
      if (skipped == 0) break;
      out.append(text.substr(i + skipped, 3));
      i += skipped + 3;
      num_digits = 3;
    }
  }
  return out;
}

/// The prediction of an answer, unless only deletions made a number of it: "1,2" is not 12, nor are
/// "1 unit 2" and "0=12".
std::string strict_prediction(std::string_view answer) {
  std::string prediction = dapo_normal_form(answer);
  const std::string_view digits =
      std::string_view(prediction).substr(prediction.starts_with('-') ? 1 : 0);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return prediction;
  std::string unchanged(stripped(answer));
  std::string_view right = answer;
  if (const std::size_t equals = answer.rfind('='); equals != std::string_view::npos) {
    right = answer.substr(equals + 1);
    const std::optional<double> left = to_float(answer.substr(0, equals));
    if (left && left != to_float(prediction)) return unchanged;
  }
  const std::string joined = with_joined_thousands(right);
  for (std::size_t i = 0; (i = joined.find(digits, i)) != std::string::npos; ++i) {
    const std::size_t end = i + digits.size();
    if ((i == 0 || !is_digit(joined[i - 1])) && (end == joined.size() || !is_digit(joined[end])))
      return prediction;
  }
  return unchanged;
}

json::value record(bool is_right, json::value prediction) {
  return json::object{
      {"score", is_right ? 1.0 : -1.0}, {"acc", is_right}, {"pred", std::move(prediction)}};
}

/// Digits without leading zeros, behind a sign where the number is negative; nothing for other texts.
std::optional<std::string> integer_text(std::string_view text) {
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  std::string_view digits = text.substr(has_sign ? 1 : 0);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return std::nullopt;
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return "0";
  return (text.starts_with('-') ? "-" : "") + std::string(digits);
}

/// The whole number that an answer of the label means. The original cuts off what follows the
/// point: "2.5" would be answered by 2. Strictly that is no label.
/// Integers keep all their digits; the original makes doubles of them.
Expected<std::string> whole_number(std::string_view answer, Grading grading) {
  const auto shown = [&] { return shown_label(json::value(json::string(answer))); };
  const std::string normal = dapo_normal_form(final_answer(answer));
  if (grading == Grading::kStrict) {
    if (std::optional<std::string> digits = integer_text(normal)) return std::move(*digits);
  }
  const std::optional<double> number = to_float(normal);
  if (!number || !std::isfinite(*number))
    return failure("dapo: the label " + shown() + " is not a number");
  if (grading == Grading::kStrict && *number != std::trunc(*number)) {
    return failure("dapo: the label " + shown() +
                   " is not a whole number, which is all that dapo compares; math compares others");
  }
  return to_integer_string(*number);
}

/// The record for an answer that was found in a response.
Expected<json::value> grade(std::string_view answer, const json::value& label, Grading grading) {
  const std::string prediction =
      grading == Grading::kStrict ? strict_prediction(answer) : dapo_normal_form(answer);
  return best_score(label, "dapo", [&](std::string_view truth) -> Expected<json::value> {
    const Expected<std::string> number = whole_number(truth, grading);
    if (!number) return tl::make_unexpected(number.error());
    return record(prediction == *number, json::string(prediction));
  });
}

}  // namespace

std::string dapo_normal_form(std::string_view answer) {
  if (const std::size_t equals = answer.rfind('='); equals != std::string_view::npos)
    answer.remove_prefix(equals + 1);
  std::string text(answer);
  for (const auto& [from, to] : kSubstitutions) {
    text = replaced(text, from, to);
  }
  for (const std::string_view deleted : kDeleted) text = replaced(text, deleted, "");
  text = keep_math(text);
  for (const std::string_view opening : {"\\text{", "\\textbf{", "\\overline{"})
    text = unwrapped(text, opening);
  text = unwrapped_longest(text, "\\boxed{");
  text = with_root_braces(with_fraction_braces(text));
  text = replaced(text, "$", "");
  const std::string digits = replaced(text, ",", "");
  if (!digits.empty() && std::all_of(digits.begin(), digits.end(), is_digit)) text = digits;
  return std::string(stripped(text));
}

Expected<json::value> score_dapo(std::string_view response, const json::value& label,
                                 Grading grading) {
  return grade(stated_answer(last_characters(response, kCharactersRead)), label, grading);
}

Expected<json::value> score_boxed_dapo(std::string_view response, const json::value& label,
                                       Grading grading) {
  return grade(extract_answer(response).value_or(kNoAnswer), label, grading);
}

Expected<json::value> score_dapo_box(std::string_view response, const json::value& label) {
  const std::optional<std::string_view> boxed =
      last_boxed_with_braces(last_characters(response, kBoxCharactersRead));
  constexpr std::size_t kOpening = std::string_view("\\boxed{").size();
  return best_score(label, "dapo_box", [&](std::string_view answer) -> Expected<json::value> {
    if (!boxed) return record(false, nullptr);
    const std::string_view prediction = boxed->substr(kOpening, boxed->size() - kOpening - 1);
    return record(prediction == final_answer(answer), json::string(prediction));
  });
}

}  // namespace slime::reward
