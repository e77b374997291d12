#pragma once

/// The answer of a mathematical question as a typed value, read from LaTeX or plain text.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reward/formula.h"
#include "reward/plain_latex.h"
#include "reward/units.h"

namespace slime::reward {

struct Answer {
  enum class Kind {
    kText,       // words: `text`
    kFormula,    // a number or function: `formula`, perhaps with a `unit`
    kTuple,      // parts in brackets: (1, 2), [0, 1), <1, 2>; an interval if its parts allow it
    kSet,        // parts in braces
    kList,       // parts that stand side by side: "2, 3", "x = 1 or x = 2"
    kMatrix,     // parts, `columns` in a row
    kRelation,   // parts with `signs` between them: x = 5, 1 < x <= 2, x \in (0, 1)
    kOperation,  // two sets: `text` is "\cup", "\cap" or "\setminus"
    kBuilder,    // {x | condition}: parts are the variable and the condition
    kNumbers,    // a set of numbers by its name: `text` is "\reals", "\integers", ...
    kRatio,      // parts with colons between them: 2:3, 7:30 with `text` behind
    kBased,      // `text` are digits, `formula` their base: 1010_2
    kResidue,    // parts[0] modulo parts[1]; `text` is "bmod" or "pmod"
    kEllipsis,   // the dots of a list
  };
  Kind kind = Kind::kText;
  std::string text = {};
  Formula formula = {};
  std::vector<Answer> parts = {};
  std::string open = {}, close = {};    // brackets of a tuple
  std::vector<std::string> signs = {};  // of a relation; of a list what stands between its parts
  std::size_t columns = 0;
  std::optional<Unit> unit = {};
};

using AnswerKind = Answer::Kind;

/// A number or function without a unit.
bool is_plain(const Answer& answer);
Answer answer_of(Formula formula);

/// The answer that a text holds; kText with its text_form where it is nothing else. `keeps_commas`:
/// commas between digits are those of a list, not of thousands. Bounded: at most 2,000 characters
/// are parsed, and 100 levels.
Answer read_answer(const PlainLatex& plain, bool keeps_commas = false);

}  // namespace slime::reward
