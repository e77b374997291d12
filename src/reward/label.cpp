#include "reward/label.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr std::size_t kMostAnswers = 1000;

/// The strings of a list that was written as text: ["a", "b"], ['a', 'b'] and numpy's ['a' 'b'],
/// also within array(..., dtype=object). Nothing for other texts: [0, 1] is an interval.
std::optional<std::vector<std::string>> quoted_list(std::string_view text) {
  constexpr std::string_view kArray = "array(";
  text = stripped(text);
  if (text.starts_with(kArray)) {
    text = text.substr(kArray.size(),
                       text.rfind(']') + 1 - std::min(text.rfind(']') + 1, kArray.size()));
  }
  if (text.size() < 4 || text.front() != '[' || text.back() != ']') return std::nullopt;
  std::vector<std::string> items;
  std::size_t at = 1;
  const std::size_t end = text.size() - 1;
  while (true) {
    while (at < end && (is_blank(text[at]) || text[at] == ',')) ++at;
    if (at == end) break;
    const char quote = text[at];
    if (quote != '"' && quote != '\'') return std::nullopt;
    std::string item;
    for (++at; at < end && text[at] != quote; ++at) {
      // Of escapes those that LaTeX needs: \\ and the quotes.
      if (text[at] == '\\' && at + 1 < end && (text[at + 1] == '\\' || text[at + 1] == quote)) {
        ++at;
      }
      item += text[at];
    }
    if (at >= end) return std::nullopt;
    ++at;
    items.push_back(std::move(item));
    if (items.size() > kMostAnswers) return std::nullopt;
  }
  if (items.empty()) return std::nullopt;
  return items;
}

double number_in(const json::value& score) {
  const json::object* record = score.if_object();
  const json::value& number = record == nullptr ? score : record->at("score");
  return number.to_number<double>();
}

}  // namespace

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
  if (label.is_double() && !std::isfinite(label.get_double())) {
    return failure(
        fmt::format("{}: the label is a number that no double holds; write it as a string", rule));
  }
  std::string text = to_python_string(label);
  if (stripped(text).empty()) return failure(fmt::format("{}: the label is empty", rule));
  return text;
}

Expected<std::vector<std::string>> right_answers(const json::value& label, std::string_view rule) {
  std::vector<std::string> answers;
  if (const json::array* list = label.if_array()) {
    if (list->empty()) return failure(fmt::format("{}: the label is an empty list", rule));
    if (list->size() > kMostAnswers) {
      return failure(fmt::format("{}: the label has {} answers, at most {} are read", rule,
                                 list->size(), kMostAnswers));
    }
    for (const json::value& each : *list) {
      Expected<std::string> text = label_text(each, rule);
      if (!text) return failure(text.error().message + " (in a list of right answers)");
      answers.push_back(std::move(*text));
    }
    return answers;
  }
  Expected<std::string> text = label_text(label, rule);
  if (!text) return tl::make_unexpected(text.error());
  if (label.is_string()) {
    if (auto items = quoted_list(*text)) {
      for (std::string& item : *items) {
        if (stripped(item).empty()) {
          return failure(
              fmt::format("{}: the label {} holds an empty answer", rule, shown_label(label)));
        }
        answers.push_back(std::move(item));
      }
      return answers;
    }
  }
  answers.push_back(std::move(*text));
  return answers;
}

std::string_view final_answer(std::string_view text) {
  constexpr std::string_view kMark = "####";
  const std::size_t mark = text.rfind(kMark);
  if (mark == std::string_view::npos) return text;
  const std::string_view answer = stripped(text.substr(mark + kMark.size()));
  return answer.empty() ? text : answer;
}

Expected<json::value> best_score(
    const json::value& label, std::string_view rule,
    const std::function<Expected<json::value>(std::string_view)>& score) {
  const Expected<std::vector<std::string>> answers = right_answers(label, rule);
  if (!answers) return tl::make_unexpected(answers.error());
  std::optional<Expected<json::value>> best;
  for (const std::string& answer : *answers) {
    Expected<json::value> one = score(answer);
    const bool is_better = !best || (one && (!*best || number_in(*one) > number_in(**best)));
    if (is_better) best = std::move(one);
  }
  return std::move(*best);
}

}  // namespace slime::reward
