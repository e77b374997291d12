#include "reward/number_words.h"

#include <initializer_list>
#include <map>
#include <string>

#include "reward/python_text.h"

namespace slime::reward {
namespace {

const std::map<std::string_view, int>& cardinal_words() {
  static const std::map<std::string_view, int> kWords{
      {"zero", 0},     {"one", 1},      {"two", 2},        {"three", 3},     {"four", 4},
      {"five", 5},     {"six", 6},      {"seven", 7},      {"eight", 8},     {"nine", 9},
      {"ten", 10},     {"eleven", 11},  {"twelve", 12},    {"thirteen", 13}, {"fourteen", 14},
      {"fifteen", 15}, {"sixteen", 16}, {"seventeen", 17}, {"eighteen", 18}, {"nineteen", 19},
      {"twenty", 20},  {"thirty", 30},  {"forty", 40},     {"fifty", 50},    {"sixty", 60},
      {"seventy", 70}, {"eighty", 80},  {"ninety", 90}};
  return kWords;
}

const std::map<std::string_view, int>& part_words() {
  static const std::map<std::string_view, int> kWords{
      {"half", 2},     {"halves", 2}, {"third", 3},   {"thirds", 3}, {"quarter", 4},
      {"quarters", 4}, {"fourth", 4}, {"fourths", 4}, {"fifth", 5},  {"fifths", 5},
      {"sixth", 6},    {"sixths", 6}, {"seventh", 7}, {"eighth", 8}, {"eighths", 8},
      {"ninth", 9},    {"tenth", 10}, {"tenths", 10}};
  return kWords;
}

/// The word at `at`, in small letters, behind blanks and a hyphen.
std::string word_at(std::string_view text, std::size_t& at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '-')) ++at;
  const std::size_t begin = at;
  while (at < text.size() && is_letter(text[at])) ++at;
  return to_lower(text.substr(begin, at - begin));
}

}  // namespace

std::optional<std::pair<Formula, std::size_t>> number_in_words(std::string_view text) {
  std::size_t end = 0;
  const auto first = cardinal_words().find(word_at(text, end));
  if (first == cardinal_words().end()) return std::nullopt;
  int number = first->second;
  std::size_t next = end;
  std::string word = word_at(text, next);
  if (const auto digit = cardinal_words().find(word);
      number >= 20 && digit != cardinal_words().end() && digit->second > 0 && digit->second < 10) {
    number += digit->second;
    end = next;
    word = word_at(text, next);
  }
  if (word == "hundred") {
    number *= 100;
    end = next;
  }
  Formula formula = number_formula(std::to_string(number));
  if (const auto part = part_words().find(word); part != part_words().end()) {
    formula = quotient_of(std::move(formula), number_formula(std::to_string(part->second)));
    end = next;
  }
  return std::pair{std::move(formula), end};
}

}  // namespace slime::reward
