#pragma once

/// Recursive descent from the text of an answer to its typed value, for read_answer alone. Its
/// functions lie in one file per noun: answer_lists.cpp, answer_quantities.cpp, ...

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reward/answer.h"

namespace slime::reward {

inline constexpr int kDeepestAnswer = 120;
inline constexpr std::size_t kMostAnswerParts = 200;

/// "sin", "gcd", ...: names that are functions, with a backslash or without.
bool is_function_name(std::string_view name);
/// "alpha", "Omega", ...: commands that are symbols.
bool is_symbol_command(std::string_view name);

/// A function that returns nothing or false has failed, which ends everything: the answer is a text
/// then. Functions that read something begin at `at_`, blanks skipped, and leave `at_` behind it.
class AnswerParser {
 public:
  AnswerParser(const PlainLatex& plain, bool keeps_commas)
      : plain_(plain), text_(plain.text), keeps_commas_(keeps_commas) {}

  std::optional<Answer> run() {
    std::optional<Answer> answer = list("");
    skip();
    const bool is_nothing = answer && answer->kind == Answer::Kind::kList && answer->parts.empty();
    if (!answer || is_nothing || at_ < text_.size()) return std::nullopt;
    return answer;
  }

 private:
  using Maybe = std::optional<Answer>;
  using MaybeFormula = std::optional<Formula>;

  // Characters.

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool at_end();
  char next();
  bool at(std::string_view what);
  bool accept(std::string_view what);
  /// Letters from here, without a backslash.
  std::string_view word();
  /// The name of the command here; empty: there is none.
  std::string_view command();
  bool accept_command(std::string_view name);
  bool accept_word(std::string_view name);
  template <typename Rule>
  auto deeper(const Rule& rule) -> decltype(rule()) {
    if (++depth_ > kDeepestAnswer) return {};
    auto out = rule();
    --depth_;
    return out;
  }

  // Lists, relations, sets.

  /// What separates the parts of a list: "," ";" "and" "or", the end of a row. Empty: nothing does.
  std::string separator();
  /// Parts up to `close` (not read) or the end of the text.
  Maybe list(std::string_view close);
  bool closes(std::string_view close);
  std::string relation_sign();
  /// Words in front of an answer: "The answer is 5", "Area = 12", "Total: 12".
  void skip_lead();
  Maybe item();
  Maybe relation();
  Maybe ratio();
  Maybe sets();

  // Quantities.

  /// An expression with what may stand around it: currency, unit, percent, degrees, "mod 7".
  Maybe quantity();
  static const char* currency_name(std::string_view command);
  Maybe residue(Answer of);
  /// Reads what stands behind a value; false: it is nothing that can stand there.
  bool unit_behind(Answer& value);
  /// "am", "p.m." here.
  bool half_of_day();
  bool any_text_from_here();
  static Formula in_base_units(const Formula& value, const Unit& unit);

  // Expressions.

  /// The next expression, which has to be a scalar.
  MaybeFormula scalar();
  Maybe expression();
  static Formula with_sign(const std::string& sign, Formula of);
  Maybe signed_product();
  Maybe product();
  /// Whether what follows multiplies what was read.
  bool starts_factor();
  char last_character() const;
  /// Letters that are symbols: one letter, or a run of two or three outside of words, or a function.
  bool starts_symbol();
  Maybe power();
  static std::vector<Formula> one(Formula of);
  /// "th" behind a number, in a power or not.
  std::string_view ordinal();
  /// The argument of a command or power: a group, or one character, command or number.
  MaybeFormula argument();
  MaybeFormula any_argument();
  /// The argument of \frac: one digit, where there is no group.
  MaybeFormula short_argument();
  /// {...} around a scalar.
  MaybeFormula group();
  /// "{a \\over b}" and "{n \\choose k}", of which `top` was read; false: what follows is no scalar.
  bool over_or_choose(Formula& top);

  // Primaries.

  Maybe primary();
  Maybe letters();
  /// Whether brackets with a comma in them follow the letter here.
  bool tuple_follows() const;
  static Maybe maybe_answer(MaybeFormula formula);
  /// One letter with its index: x, x_1, x_{n+1}.
  MaybeFormula symbol(std::size_t length);
  MaybeFormula indexed(std::string name);
  /// What stands behind "_": a group, a run of digits, a letter or a command.
  std::optional<std::string> index_text();

  // Numbers.

  std::size_t digits_at(std::size_t i) const;
  Maybe number();
  bool is_repeating();
  /// "0.1\overline{6}", "0.\dot{1}4\dot{2}": digits, then the period.
  Maybe repeating(const std::string& before);
  /// "0.333..." and "0.1818...": decimals that end with a block at least twice, one digit three times.
  MaybeFormula going_on(const std::string& digits);
  /// 1010_2
  Maybe in_base(const std::string& digits);
  bool exponent_follows() const;
  Maybe scientific(std::string digits);
  /// "3\frac{1}{2}" and "3 1/2": a whole number, then a proper fraction of whole numbers.
  MaybeFormula mixed_number(const std::string& whole);

  // Brackets.

  /// (...), [...], half-open and French ]...[
  Maybe bracketed();
  /// {x+1}, {1, 2}: a group, or a set without its backslashes.
  Maybe braced();
  /// \{1, 2\}, \{x \mid x > 2\}
  Maybe set();
  Maybe bars();

  // Commands.

  Maybe commanded();
  std::optional<std::string> index_text_after_space();
  /// \sum_{k=1}^{n} body
  MaybeFormula series(const std::string& name);
  /// "dx", "d\\theta", "dxdy" here, in an integral that is open.
  bool at_differential();
  /// The variable of one.
  std::string differential();
  /// Bounds, each where there is one; false: one cannot be read.
  bool bounds(MaybeFormula& lower, MaybeFormula& upper);
  /// What follows \int, \iint, ...
  MaybeFormula integral(const std::string& name);
  /// "^+" or "^-" at the end of a group: the side from which a limit comes.
  bool at_side() const;
  /// What follows \lim
  MaybeFormula limit();
  static Formula with_constant_as_symbol(Formula of);
  /// A function, its power, and its argument: \sin^2 x, \log_2 8, \sqrt[3]{2}, \gcd(8, 12).
  MaybeFormula function(std::string name);
  MaybeFormula applied(std::string name, std::vector<Formula> args, MaybeFormula exponent);
  /// Factors up to the next sign, function or bracket: the 2x of \sin 2x + 1 and of \sin 2x\cos x.
  MaybeFormula function_argument();
  MaybeFormula square_root();

  // Matrices.

  Maybe matrix();
  /// The rows of an environment as a list: x = 1 \\ y = 2.
  Maybe system(const std::string& name);
  /// "\begin {pmatrix}"
  bool environment(std::string_view which, std::string& name);

  const PlainLatex& plain_;
  const std::string& text_;
  const bool keeps_commas_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int num_bars_ = 0;
  int num_operations_ = 0;
  int num_open_integrals_ = 0;  // in the brackets here
  int num_sets_ = 0;
  bool in_builder_ = false;
};

}  // namespace slime::reward
