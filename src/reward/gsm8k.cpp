#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "reward/boxed.h"
#include "reward/digits.h"
#include "reward/label.h"
#include "reward/python_text.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

constexpr std::size_t kLongestNumber = 1000;

/// A number of the text, without what does not change it: "+1,234.50" -> "1234.5".
struct Found {
  std::string number;
  std::size_t end = 0;
};

bool starts_number(std::string_view text, std::size_t i) {
  return is_digit(text[i]) || (text[i] == '.' && i + 1 < text.size() && is_digit(text[i + 1]));
}

/// Digits with commas between thousands, then a decimal part.
Found read_number(std::string_view text, std::size_t begin) {
  std::string whole, fraction;
  std::size_t i = begin;
  const auto digits_at = [&](std::size_t from) {
    std::size_t end = from;
    while (end < text.size() && is_digit(text[end])) ++end;
    return end - from;
  };
  const std::size_t first = digits_at(i);
  whole.append(text.substr(i, first));
  i += first;
  for (bool is_grouped = first > 0 && first <= 3; is_grouped;) {
    std::size_t comma = i;
    if (text.substr(comma).starts_with("{,}")) {
      comma += 3;
    } else if (text.substr(comma).starts_with(',')) {
      comma += 1;
    }
    is_grouped = comma > i && digits_at(comma) == 3;
    if (!is_grouped) break;
    whole.append(text.substr(comma, 3));
    i = comma + 3;
  }
  if (i + 1 < text.size() && text[i] == '.' && is_digit(text[i + 1])) {
    const std::size_t decimals = digits_at(i + 1);
    fraction = text.substr(i + 1, decimals);
    i += 1 + decimals;
  }
  std::size_t before = begin;
  while (before > 0 &&
         (text[before - 1] == ' ' || text[before - 1] == '$' || text[before - 1] == '\\')) {
    --before;
  }
  const bool is_negative =
      before > 0 && text[before - 1] == '-' &&
      (before == 1 || !(is_digit(text[before - 2]) || is_letter(text[before - 2])));
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.erase(fraction.find_last_not_of('0') + 1);
  if (whole.empty()) whole = "0";
  std::string number = whole + (fraction.empty() ? "" : "." + fraction);
  if (is_negative && number != "0") number.insert(number.begin(), '-');
  return {std::move(number), i};
}

/// The first or the last number of the text; nothing when there is none.
std::optional<std::string> number_in(std::string_view text, bool is_first) {
  std::optional<std::string> number;
  for (std::size_t i = 0; i < text.size();) {
    if (!starts_number(text, i)) {
      ++i;
      continue;
    }
    Found found = read_number(text, i);
    i = std::max(found.end, i + 1);
    number = found.number.size() <= kLongestNumber ? std::move(found.number) : "";
    if (is_first) break;
  }
  return number;
}

/// The answer of a response: what follows its last "####", else its last box, else its last number.
std::optional<std::string> stated_number(std::string_view response) {
  const std::string_view answer = final_answer(response);
  if (answer.size() != response.size()) return number_in(answer.substr(0, answer.find('\n')), true);
  if (const auto box = extract_answer(response)) return number_in(*box, false);
  return number_in(response, false);
}

/// The number of a label, which is that number or a solution that ends with "#### number".
Expected<std::string> number_of(std::string_view label) {
  const std::string text = with_ascii_digits(final_answer(label));
  const std::optional<std::string> number = number_in(text, true);
  if (!number || number->empty()) {
    return failure(fmt::format("gsm8k: the label {} has no number",
                               shown_label(json::value(json::string(label)))));
  }
  return *number;
}

}  // namespace

Expected<json::value> score_gsm8k(std::string_view response, const json::value& label) {
  const std::optional<std::string> given = stated_number(with_ascii_digits(response));
  return best_score(label, "gsm8k", [&](std::string_view answer) -> Expected<json::value> {
    const Expected<std::string> truth = number_of(answer);
    if (!truth) return tl::make_unexpected(truth.error());
    return given == *truth ? 1 : 0;
  });
}

}  // namespace slime::reward
