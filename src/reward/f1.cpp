#include <fmt/format.h>

#include <map>

#include "reward/label.h"
#include "reward/python_text.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

/// The words a, an, the become a blank.
std::string without_articles(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (!is_word_character(text, i)) {
      const std::size_t bytes = point_bytes(text, i);
      out.append(text.substr(i, bytes));
      i += bytes;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && is_word_character(text, end)) end += point_bytes(text, end);
    const std::string_view word = text.substr(i, end - i);
    out += word == "a" || word == "an" || word == "the" ? " " : word;
    i = end;
  }
  return out;
}

bool decides_alone(std::string_view text) {
  return text == "yes" || text == "no" || text == "noanswer";
}

}  // namespace

std::string f1_normal_form(std::string_view text) {
  std::string plain = to_lower(text);
  std::erase_if(plain, is_punctuation);
  plain = without_articles(plain);  // the words are views into it
  std::string out;
  for (const std::string_view word : split(plain)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

F1 word_overlap(std::string_view prediction, std::string_view truth) {
  const std::string given = f1_normal_form(prediction);
  const std::string wanted = f1_normal_form(truth);
  if ((decides_alone(given) || decides_alone(wanted)) && given != wanted) return {};
  const std::vector<std::string_view> given_words = split(given);
  const std::vector<std::string_view> wanted_words = split(wanted);
  std::map<std::string_view, int64_t> left;
  for (const std::string_view word : wanted_words) ++left[word];
  int64_t num_common = 0;
  for (const std::string_view word : given_words) {
    const auto found = left.find(word);
    if (found != left.end() && found->second-- > 0) ++num_common;
  }
  if (num_common == 0) return {};
  const double precision =
      static_cast<double>(num_common) / static_cast<double>(given_words.size());
  const double recall = static_cast<double>(num_common) / static_cast<double>(wanted_words.size());
  return {2 * precision * recall / (precision + recall), precision, recall};
}

Expected<json::value> score_f1(std::string_view response, const json::value& label,
                               Grading grading) {
  if (grading == Grading::kOriginal) {
    if (!label.is_string()) {
      const Expected<std::string> text = label_text(label, "f1");
      if (!text) return tl::make_unexpected(text.error());
    }
    return word_overlap(response, to_python_string(label)).f1;
  }
  return best_score(label, "f1", [&](std::string_view answer) -> Expected<json::value> {
    if (f1_normal_form(answer).empty()) {
      return failure(fmt::format("f1: the label {} has no word but articles",
                                 shown_label(json::value(json::string(answer)))));
    }
    return word_overlap(response, answer).f1;
  });
}

}  // namespace slime::reward
