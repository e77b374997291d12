#include "reward/math_equality.h"

#include <set>

#include "reward/expression_equality.h"
#include "reward/math_normal_form.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr std::string_view kBrackets = "()[]";
constexpr std::size_t kLengthLimit = std::size_t{16} << 10;  // an answer has tens of characters

bool are_equal_elements(const std::string& truth, const std::string& given, Grading grading) {
  if (is_fraction(truth) && is_fraction(given)) return truth == given;
  if (is_integer_text(truth, grading) != is_integer_text(given, grading)) return false;
  std::string difference;
  difference.append("(").append(truth).append(")-(").append(given).append(")");
  return allows_evaluation(difference) && are_equal_expressions(truth, given);
}

}  // namespace

bool mathd_equal(std::optional<std::string_view> given, std::optional<std::string_view> truth,
                 Grading grading) {
  if (!given || !truth) return !given && !truth;
  return mathd_normal_form(*given, grading) == mathd_normal_form(*truth, grading);
}

std::vector<std::string> split_tuple(std::string_view text) {
  const std::string plain = without_thousands_commas(text);
  if (plain.empty()) return {};
  const std::string_view inside =
      plain.size() > 2 ? std::string_view(plain).substr(1, plain.size() - 2) : "";
  if (inside.empty() || kBrackets.find(plain.front()) == std::string_view::npos ||
      kBrackets.find(plain.back()) == std::string_view::npos ||
      inside.find_first_of(kBrackets) != std::string_view::npos) {
    return {plain};
  }
  std::vector<std::string> elements;
  for (const std::string_view element : split(inside, ","))
    elements.emplace_back(stripped(element));
  return elements;
}

bool is_fraction(std::string_view text) {
  std::size_t i = text.starts_with('-') ? 1 : 0;
  const auto skip = [&](auto&& wanted) {
    const std::size_t begin = i;
    while (i < text.size() && wanted(text[i])) ++i;
    return i > begin;
  };
  const auto skip_any = [&] {
    if (i < text.size() && text[i] != '\n') i += point_bytes(text, i);
  };
  if (!skip(is_digit)) return false;
  if (text.substr(i).starts_with("//") || !text.substr(i).starts_with('/')) skip_any();
  if (i >= text.size() || text[i] != '/') return false;
  ++i;
  skip([](char c) { return c == '0'; });
  if (!skip(is_digit)) return false;
  skip_any();
  return i == text.size();
}

bool allows_evaluation(std::string_view text) {
  constexpr std::size_t kMostLetters = 2;
  std::string letters = replaced(text, "sqrt", "");
  letters = replaced(letters, "frac", "");
  std::set<char> different;
  for (const char c : letters) {
    if (is_letter(c) || static_cast<uint8_t>(c) >= 0x80)
      different.insert(c);  // what is not ASCII fails later anyway
  }
  if (different.size() > kMostLetters) return false;
  for (std::size_t i = 0; (i = text.find('^', i)) != std::string_view::npos;) {
    ++i;
    if (i < text.size() && (text[i] == '{' || text[i] == '(')) return false;
    std::size_t end = i;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end - i >= 2 || (end - i == 1 && end < text.size() && text[end] == '^')) return false;
  }
  return true;
}

bool sympy_equal(std::string_view given, std::string_view truth, Grading grading) {
  const std::string truth_form = sympy_normal_form(truth, grading);
  const std::string given_form = sympy_normal_form(given, grading);
  if (grading == Grading::kStrict && (truth_form.empty() || given_form.empty())) return false;
  if (truth_form == given_form) return true;
  if (given_form.empty()) return false;
  const std::vector<std::string> truths = split_tuple(truth_form);
  const std::vector<std::string> givens = split_tuple(given_form);
  if (truths.size() > 1 &&
      (truth_form.front() != given_form.front() || truth_form.back() != given_form.back()))
    return false;
  if (truths.empty() || truths.size() != givens.size()) return false;
  for (std::size_t i = 0; i < truths.size(); ++i) {
    if (!are_equal_elements(truths[i], givens[i], grading)) return false;
  }
  return true;
}

bool is_correct(std::string_view given, std::string_view truth, Grading grading) {
  if (given.size() > kLengthLimit || truth.size() > kLengthLimit) return given == truth;
  return mathd_equal(given, truth, grading) || sympy_equal(given, truth, grading);
}

}  // namespace slime::reward
