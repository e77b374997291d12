#include "reward/answer.h"

#include <algorithm>

#include "reward/answer_parser.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr std::size_t kMostCharacters = 2'000;

/// "2k\pi (k \in \mathbb{Z})" with a comma instead of the brackets, "f(x) = x for all x" without what
/// is said of x.
PlainLatex without_clause(PlainLatex plain) {
  std::string& text = plain.text;
  const auto cut = [&plain](std::size_t begin) {
    plain.text.erase(begin);
    plain.is_text.resize(begin);
    while (plain.text.ends_with(' ') || plain.text.ends_with(',')) {
      plain.text.pop_back();
      plain.is_text.pop_back();
    }
  };
  for (const std::string_view clause : {" for all ", " for every ", " for any ", "\\forall "}) {
    const std::size_t begin = text.find(clause);
    if (begin != std::string::npos && begin > 0) cut(begin);
  }
  const std::size_t open = text.rfind('(');
  if (text.ends_with(')') && open != std::string::npos && open > 1 &&
      text.find("\\in ", open) != std::string::npos && text.find(',', open) == std::string::npos) {
    text[open] = ',';
    text.pop_back();
    plain.is_text.pop_back();
  }
  return plain;
}

/// "16 (approximately)" without what stands in the brackets: words only, the first of four letters.
PlainLatex without_remark(PlainLatex plain) {
  const std::string& text = plain.text;
  if (!text.ends_with(')')) return plain;
  const std::size_t open = text.rfind('(');
  if (open == std::string::npos || open < 2) return plain;
  std::size_t longest = 0, run = 0;
  for (std::size_t i = open + 1; i + 1 < text.size(); ++i) {
    if (!is_letter(text[i]) && text[i] != ' ') return plain;
    run = is_letter(text[i]) ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  if (longest < 4 || text[open - 1] == '\\') return plain;
  plain.text.erase(open);
  plain.is_text.resize(open);
  while (plain.text.ends_with(' ')) {
    plain.text.pop_back();
    plain.is_text.pop_back();
  }
  return plain;
}

Answer text_answer(const PlainLatex& plain) {
  Answer text;
  text.text = text_form(plain);
  for (const char* all : {"allrealnumbers", "allreals", "anyrealnumber", "allrealnumber"}) {
    if (text.text != all) continue;
    text.kind = AnswerKind::kNumbers;
    text.text = "\\reals";
  }
  for (const char* none : {"nosolution", "norealsolution", "norealsolutions", "nosolutions",
                           "emptyset", "nosolutionsexist", "nosolutionexists"}) {
    if (text.text == none) text.kind = AnswerKind::kSet;
  }
  if (text.kind == AnswerKind::kSet) text.text.clear();
  return text;
}

/// The text between commas, "and" and "or" outside of brackets: what is left of a list whose parts
/// are words.
std::vector<PlainLatex> pieces_of(const PlainLatex& plain) {
  std::vector<PlainLatex> pieces;
  const std::string& text = plain.text;
  std::size_t begin = 0;
  int open = 0;
  const auto cut = [&](std::size_t end, std::size_t next) {
    end = std::max(begin, end);  // the blank of one word may be that of the next: "and and"
    PlainLatex piece;
    piece.text = text.substr(begin, end - begin);
    piece.is_text.assign(plain.is_text.begin() + static_cast<std::ptrdiff_t>(begin),
                         plain.is_text.begin() + static_cast<std::ptrdiff_t>(end));
    begin = next;
    if (!stripped(piece.text).empty()) pieces.push_back(std::move(piece));
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[' || c == '{') ++open;
    if (c == ')' || c == ']' || c == '}') --open;
    if (open != 0) continue;
    if (c == ',' || c == ';') {
      cut(i, i + 1);
      continue;
    }
    for (const std::string_view word : {" and ", " or "}) {
      if (!std::string_view(text).substr(i).starts_with(word)) continue;
      cut(i, i + word.size());
      i = begin - 2;  // the blank may begin the next one
      break;
    }
  }
  cut(text.size(), text.size());
  return pieces.size() <= kMostAnswerParts ? pieces : std::vector<PlainLatex>{};
}

}  // namespace

bool is_plain(const Answer& answer) { return answer.kind == AnswerKind::kFormula && !answer.unit; }

Answer answer_of(Formula formula) {
  Answer answer;
  answer.kind = AnswerKind::kFormula;
  answer.formula = std::move(formula);
  return answer;
}

Answer read_answer(const PlainLatex& plain, bool keeps_commas) {
  if (plain.text.size() <= kMostCharacters) {
    const PlainLatex shorter = without_clause(without_remark(plain));
    if (auto answer = AnswerParser(shorter, keeps_commas).run()) return std::move(*answer);
    const std::vector<PlainLatex> pieces = pieces_of(shorter);
    if (pieces.size() > 1) {
      Answer list;
      list.kind = AnswerKind::kList;
      for (const PlainLatex& piece : pieces) {
        auto part = AnswerParser(piece, keeps_commas).run();
        list.parts.push_back(part ? std::move(*part) : text_answer(piece));
      }
      list.signs.assign(list.parts.size() - 1, ",");
      return list;
    }
  }
  return text_answer(plain);
}

}  // namespace slime::reward
