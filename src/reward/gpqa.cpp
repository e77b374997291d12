#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "reward/label.h"
#include "reward/python_text.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return upper(c); });
  return out;
}

/// Lower case, everything but letters and digits one blank.
std::string plain_form(std::string_view text) {
  std::string out;
  for (const char c : to_lower(text)) {
    if ((c >= 'a' && c <= 'z') || is_digit(c)) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string_view after_thinking(std::string_view response) {
  constexpr std::string_view kThink = "</think>";
  const std::size_t found = response.rfind(kThink);
  return found == std::string_view::npos ? response : response.substr(found + kThink.size());
}

/// Matches words and blanks at a position of a lower-case text.
struct Cursor {
  std::string_view text;
  std::size_t position;
  Grading grading = Grading::kOriginal;

  void skip_blanks() {
    while (position < text.size() && is_blank(text[position])) ++position;
  }
  bool accept(std::string_view word) {
    if (!text.substr(position).starts_with(word)) return false;
    position += word.size();
    return true;
  }
  /// Strictly: one that stands alone.
  std::optional<char> letter() const {
    if (position >= text.size() || !is_letter(text[position])) return std::nullopt;
    if (grading == Grading::kStrict &&
        (!starts_word() || (position + 1 < text.size() && is_word_character(text, position + 1))))
      return std::nullopt;
    return upper(text[position]);
  }
  bool starts_word() const {
    if (position == 0) return true;
    std::size_t before = position - 1;
    while (before > 0 && (static_cast<uint8_t>(text[before]) & 0xc0U) == 0x80U) --before;
    return !is_word_character(text, before);
  }
  /// "(B)", "**B**", "\\boxed{B}": what may stand around a letter.
  void skip_ornaments() {
    if (grading == Grading::kOriginal) return;
    constexpr auto kOrnaments = std::to_array<std::string_view>(
        {"\\boxed{", "\\text{", "\\mathbf{", "(", "[", "{", "*", "$", "\"", "'", "`"});
    while (std::any_of(kOrnaments.begin(), kOrnaments.end(),
                       [this](std::string_view ornament) { return accept(ornament); })) {
    }
  }
};

/// blanks [is | :] blanks letter; strictly also with ornaments between them. Without a letter after
/// "is" its own first letter counts, as the expression of the original gives back what it took.
std::optional<char> letter_after_keyword(Cursor cursor) {
  cursor.skip_ornaments();  // "**Answer**: B"
  cursor.skip_blanks();
  Cursor further = cursor;
  if (further.accept("is") || further.accept(":")) {
    if (further.grading == Grading::kStrict) further.accept(":");
    further.skip_ornaments();
    further.skip_blanks();
    further.skip_ornaments();
    if (const std::optional<char> letter = further.letter()) return letter;
  }
  return cursor.letter();
}

/// 1. answer, option or choice, then the letter.
std::optional<char> letter_after_answer(Cursor cursor) {
  if (cursor.grading == Grading::kStrict && !cursor.starts_word()) return std::nullopt;
  if (!cursor.accept("answer") && !cursor.accept("option") && !cursor.accept("choice"))
    return std::nullopt;
  return letter_after_keyword(cursor);
}

/// 2. "B is the correct".
std::optional<char> letter_called_correct(Cursor cursor) {
  const std::optional<char> letter = cursor.letter();
  if (!letter) return std::nullopt;
  ++cursor.position;
  cursor.skip_blanks();
  if (!cursor.accept("is")) return std::nullopt;
  cursor.skip_blanks();
  if (cursor.accept("the")) cursor.skip_blanks();
  return cursor.accept("correct") ? letter : std::nullopt;
}

/// 3. "final answer: B".
std::optional<char> letter_after_final(Cursor cursor) {
  if (!cursor.accept("final")) return std::nullopt;
  cursor.skip_blanks();
  if (!cursor.accept("answer") && !cursor.accept("option")) return std::nullopt;
  return letter_after_keyword(cursor);
}

/// "A" and "I" before a word in small letters: an article, a pronoun.
bool is_english_word(std::string_view text, std::size_t position) {
  return (text[position] == 'A' || text[position] == 'I') && position + 2 < text.size() &&
         text[position + 1] == ' ' && text[position + 2] >= 'a' && text[position + 2] <= 'z';
}

/// The last capital letter that stands alone and is valid; strictly, not an English word.
std::optional<char> last_lone_letter(std::string_view text, std::string_view valid_letters,
                                     Grading grading) {
  std::optional<char> last;
  bool follows_word = false;
  for (std::size_t i = 0; i < text.size(); i += point_bytes(text, i)) {
    const bool is_word = is_word_character(text, i);
    const bool ends_here = i + 1 >= text.size() || !is_word_character(text, i + 1);
    if (is_word && !follows_word && ends_here && text[i] >= 'A' && text[i] <= 'Z' &&
        valid_letters.find(text[i]) != std::string_view::npos &&
        (grading == Grading::kOriginal || !is_english_word(text, i))) {
      last = text[i];
    }
    follows_word = is_word;
  }
  return last;
}

std::vector<std::string> choices_of(const json::object& metadata) {
  std::vector<std::string> choices;
  const json::value* value = metadata.if_contains("choices");
  if (value == nullptr) return choices;
  if (const json::array* list = value->if_array(); list != nullptr) {
    for (const json::value& choice : *list) choices.push_back(to_python_string(choice));
  } else if (const json::object* map = value->if_object(); map != nullptr) {
    for (const auto& member : *map) choices.push_back(to_python_string(member.value()));
  }
  return choices;
}

std::string valid_letters_of(const json::object& metadata, std::size_t num_choices) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr std::size_t kDefaultLetters = 10;
  if (const json::value* value = metadata.if_contains("valid_letters");
      value != nullptr && value->is_array()) {
    std::string letters;
    for (const json::value& letter : value->get_array()) letters += upper(to_python_string(letter));
    if (!letters.empty()) return letters;
  }
  return std::string(kAlphabet.substr(0, num_choices > 0 ? num_choices : kDefaultLetters));
}

/// The string metadata[key], or nothing.
std::optional<std::string_view> text_of(const json::object& metadata, std::string_view key) {
  const json::value* value = metadata.if_contains(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string_view(value->get_string());
}

/// What is known about the right answer.
struct Truth {
  std::string letter;                // empty: not known
  std::optional<std::string> label;  // the label's text, trimmed
};

/// A place as data sets write it, from 0: "1" is the second choice. Nothing for other texts.
std::optional<std::size_t> place_of(std::string_view text) {
  std::size_t place = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), place);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return place;
}

Truth truth_of(const json::value& label, const json::object& metadata,
               const std::vector<std::string>& choices, std::string_view valid_letters,
               Grading grading) {
  Truth truth;
  if (const auto letter = text_of(metadata, "correct_letter"))
    truth.letter = upper(stripped(*letter));
  if (label.is_string()) {
    truth.label = std::string(stripped(std::string_view(label.get_string())));
    if (truth.letter.empty() && truth.label->size() == 1 &&
        valid_letters.find(upper(*truth.label)) != std::string_view::npos) {
      truth.letter = upper(*truth.label);
    }
  } else if (label.is_number()) {
    const double index = std::trunc(label.to_number<double>());
    if (index >= 0 && index < static_cast<double>(valid_letters.size())) {
      truth.letter = valid_letters[static_cast<std::size_t>(index)];
    }
  }
  if (truth.letter.empty() && truth.label && !truth.label->empty()) {
    const std::string wanted = plain_form(*truth.label);
    for (std::size_t i = 0; i < choices.size() && i < valid_letters.size(); ++i) {
      if (plain_form(choices[i]) != wanted) continue;
      truth.letter = valid_letters[i];
      break;
    }
    // No choice's text: the same as the number. The original looks for the digit in the response.
    const std::optional<std::size_t> place = place_of(*truth.label);
    if (grading == Grading::kStrict && truth.letter.empty() && place &&
        *place < valid_letters.size()) {
      truth.letter = valid_letters[*place];
      truth.label.reset();
    }
  }
  return truth;
}

/// What a row asks, and what counts as its answer.
struct ChoiceQuestion {
  std::vector<std::string> choices;
  std::string valid_letters;
  Truth truth;
  std::vector<std::string> targets;  // texts of the right answer in plain form; none is empty

  bool has_letter() const {
    return truth.letter.size() == 1 && valid_letters.find(truth.letter) != std::string::npos;
  }
};

ChoiceQuestion question_of(const json::value& label, const json::object& metadata,
                           Grading grading) {
  ChoiceQuestion question;
  question.choices = choices_of(metadata);
  question.valid_letters = valid_letters_of(metadata, question.choices.size());
  question.truth = truth_of(label, metadata, question.choices, question.valid_letters, grading);
  const Truth& truth = question.truth;
  std::vector<std::string>& targets = question.targets;
  const std::size_t index =
      truth.letter.size() == 1 ? question.valid_letters.find(truth.letter) : std::string::npos;
  if (index < question.choices.size()) targets.push_back(plain_form(question.choices[index]));
  for (const std::string_view key : {"correct_answer", "answer_text"}) {
    if (const auto text = text_of(metadata, key)) targets.push_back(plain_form(*text));
  }
  if (truth.label) targets.push_back(plain_form(*truth.label));
  std::erase(targets, "");
  return question;
}

/// Why no response answers it.
std::optional<std::string> problem_in(const ChoiceQuestion& question, const json::value& label) {
  const auto can_be_said = [](const std::string& target) {  // a letter alone is no text
    return target.size() > 1 || !is_letter(target.front());
  };
  if (question.has_letter() || std::ranges::any_of(question.targets, can_be_said))
    return std::nullopt;
  return fmt::format("gpqa: {}, and metadata has no correct_letter, correct_answer or answer_text",
                     label.is_null() ? "the label is missing"
                                     : fmt::format("the label {} names none of the choices {}",
                                                   shown_label(label), question.valid_letters));
}

bool has_words(std::string_view text, std::string_view words) {
  for (std::size_t i = 0; (i = text.find(words, i)) != std::string_view::npos; ++i) {
    const std::size_t end = i + words.size();
    if ((i == 0 || text[i - 1] == ' ') && (end == text.size() || text[end] == ' ')) return true;
  }
  return false;
}

/// The text has `target` as whole words, and no other choice's text: who lists all has not chosen.
bool names_choice(std::string_view text, std::string_view target,
                  const std::vector<std::string>& choices) {
  if ((target.size() == 1 && is_letter(target.front())) || !has_words(text, target)) return false;
  return std::none_of(choices.begin(), choices.end(), [&](const std::string& choice) {
    const std::string other = plain_form(choice);
    return !other.empty() && !has_words(target, other) && has_words(text, other);
  });
}

}  // namespace

std::optional<char> choice_letter(std::string_view response, std::string_view valid_letters,
                                  Grading grading) {
  const std::string_view text = after_thinking(response);
  std::string folded(text);  // ASCII only, so that positions stay
  std::transform(folded.begin(), folded.end(), folded.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const auto pattern : {letter_after_answer, letter_called_correct, letter_after_final}) {
    for (std::size_t i = 0; i < folded.size(); ++i) {
      const std::optional<char> letter = pattern({folded, i, grading});
      if (!letter) continue;
      if (valid_letters.find(*letter) != std::string_view::npos) return letter;
      if (grading == Grading::kOriginal) break;  // only the first match of a pattern counts
    }
  }
  return last_lone_letter(text, valid_letters, grading);
}

std::optional<std::string> gpqa_label_problem(const json::value& label,
                                              const json::object& metadata, Grading grading) {
  if (grading == Grading::kOriginal) return std::nullopt;
  return problem_in(question_of(label, metadata, grading), label);
}

Expected<json::value> score_gpqa(std::string_view response, const json::value& label,
                                 const json::object& metadata, Grading grading) {
  const ChoiceQuestion question = question_of(label, metadata, grading);
  if (grading == Grading::kStrict) {
    if (const auto problem = problem_in(question, label)) return failure(*problem);
  }
  const Truth& truth = question.truth;
  const std::optional<char> given = choice_letter(response, question.valid_letters, grading);
  if (given && !truth.letter.empty()) return truth.letter == std::string(1, *given) ? 1.0 : 0.0;

  const std::string text = plain_form(after_thinking(response));
  for (const std::string& target : question.targets) {
    if (grading == Grading::kOriginal ? text.find(target) != std::string::npos
                                      : names_choice(text, target, question.choices))
      return 1.0;
  }
  if (given && truth.letter.empty() && truth.label)
    return upper(*truth.label) == std::string(1, *given) ? 1.0 : 0.0;
  return 0.0;
}

}  // namespace slime::reward
