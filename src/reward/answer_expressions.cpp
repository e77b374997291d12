#include <utility>

#include "reward/answer_parser.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

/// Scalar times matrix, element by element.
Answer scaled(const Formula& by, Answer matrix) {
  for (Answer& part : matrix.parts) {
    part.formula = binary(FormulaKind::kProduct, by, std::move(part.formula));
  }
  return matrix;
}

}  // namespace

AnswerParser::MaybeFormula AnswerParser::scalar() {
  Maybe value = expression();
  if (!value || !is_plain(*value)) return std::nullopt;
  return std::move(value->formula);
}

AnswerParser::Maybe AnswerParser::expression() {
  return deeper([&]() -> Maybe {
    Maybe first = signed_product();
    if (!first) return std::nullopt;
    if (!is_plain(*first)) return first;
    Formula sum{FormulaKind::kSum, ""};
    sum.args.push_back(std::move(first->formula));
    while (true) {
      skip();
      const std::size_t here = at_;
      std::string sign;
      if (accept("+")) {
        sign = "+";
      } else if (accept("-")) {
        sign = "-";
      } else if (accept_command("pm")) {
        sign = "\\pm";
      } else if (accept_command("mp")) {
        sign = "\\mp";
      }
      if (sign.empty()) break;
      if (sum.args.size() > 1'000) return std::nullopt;
      if (sign == "+" && accept_command("ldots")) {
        at_ = here;
        return std::nullopt;  // 1 + 2 + ... + n
      }
      Maybe next = signed_product();
      if (!next || !is_plain(*next)) return std::nullopt;
      sum.args.push_back(with_sign(sign, std::move(next->formula)));
    }
    if (sum.args.size() == 1) return answer_of(std::move(sum.args[0]));
    return answer_of(std::move(sum));
  });
}

Formula AnswerParser::with_sign(const std::string& sign, Formula of) {
  if (sign == "+") return of;
  if (sign == "-") return unary(FormulaKind::kNegative, std::move(of));
  Formula either = unary(FormulaKind::kEither, std::move(of));
  either.text = sign == "\\pm" ? "+" : "-";
  return either;
}

AnswerParser::Maybe AnswerParser::signed_product() {
  std::string sign;
  int num_signs = 0;
  bool is_negative = false;
  std::string either;
  while (true) {
    if (accept("+")) {
    } else if (accept("-")) {
      is_negative = !is_negative;
    } else if (accept_command("pm")) {
      either = "\\pm";
    } else if (accept_command("mp")) {
      either = "\\mp";
    } else {
      break;
    }
    if (++num_signs > 20) return std::nullopt;
  }
  Maybe of = product();
  if (!of || (!is_negative && either.empty())) return of;
  if (of->kind == AnswerKind::kMatrix && is_negative)
    return scaled(unary(FormulaKind::kNegative, number_formula("1")), std::move(*of));
  if (!is_plain(*of)) return std::nullopt;
  if (is_negative) of->formula = unary(FormulaKind::kNegative, std::move(of->formula));
  if (!either.empty()) of->formula = with_sign(either, std::move(of->formula));
  return of;
}

AnswerParser::Maybe AnswerParser::product() {
  Maybe first = power();
  if (!first) return std::nullopt;
  Formula all{FormulaKind::kProduct, ""};
  if (is_plain(*first)) {
    all.args.push_back(std::move(first->formula));
  } else {
    return first;
  }
  while (true) {
    skip();
    bool divides = false;
    if (accept("*")) {
    } else if (accept("/")) {
      divides = true;
    } else if (!starts_factor()) {
      break;
    }
    if (all.args.size() > 1'000) return std::nullopt;
    std::size_t num_signs = 0;
    bool is_negative = false;
    while ((divides || text_[at_ > 0 ? at_ - 1 : 0] == '*' || num_signs > 0) && at("-")) {
      accept("-");
      is_negative = !is_negative;
      if (++num_signs > 20) return std::nullopt;
    }
    Maybe next = power();
    if (!next) return std::nullopt;
    if (next->kind == AnswerKind::kMatrix && !divides && !is_negative) {
      return scaled(all.args.size() == 1 ? all.args[0] : all, std::move(*next));
    }
    if (!is_plain(*next)) return std::nullopt;
    Formula factor = std::move(next->formula);
    if (divides) factor = unary(FormulaKind::kInverse, std::move(factor));
    if (is_negative) factor = unary(FormulaKind::kNegative, std::move(factor));
    all.args.push_back(std::move(factor));
  }
  if (all.args.size() == 1) return answer_of(std::move(all.args[0]));
  return answer_of(std::move(all));
}

bool AnswerParser::starts_factor() {
  const char c = next();
  if (c == '\0' || at_differential()) return false;
  if (c == '(') return !at("(mod");
  if (c == '{') return true;
  if (c == '|') return !in_builder_ && num_bars_ == 0;
  if (is_letter(c)) return starts_symbol();
  if (is_digit(c)) return at_ > 0 && !is_digit(last_character()) && last_character() != '.';
  if (c != '\\') return false;
  const std::string_view name = command();
  return name == "frac" || name == "sqrt" || name == "pi" || name == "binom" || name == "lfloor" ||
         name == "lceil" || name == "infty" || name == "sum" || name == "prod" || name == "int" ||
         name == "iint" || name == "iiint" || name == "oint" || name == "lim" ||
         name == "overline" || name == "vec" || name == "hat" || name == "bar" ||
         is_symbol_command(name) || is_function_name(name) || name == "begin";
}

char AnswerParser::last_character() const {
  std::size_t i = at_;
  while (i > 0 && text_[i - 1] == ' ') --i;
  return i > 0 ? text_[i - 1] : '\0';
}

bool AnswerParser::starts_symbol() {
  const std::string_view letters = word();
  if (half_of_day()) return false;
  // Minutes, not the least of something.
  if (letters == "min" && !std::string_view(text_).substr(at_ + 3).starts_with("(")) return false;
  if (is_function_name(letters) || letters == "pi" || letters == "infty") return true;
  if (letters.size() == 1) {
    // A unit in \text{}, or one letter behind a space: "5 m".
    if (any_text_from_here()) return letters == "e" || letters == "i" || letters == "d";
    const bool is_spaced = at_ > 0 && text_[at_ - 1] == ' ' && at_ > 1 && is_digit(text_[at_ - 2]);
    const bool is_unit = letters == "m" || letters == "g" || letters == "s" || letters == "L" ||
                         letters == "h" || letters == "N" || letters == "J" || letters == "W";
    return !(is_spaced && is_unit && at_ + 1 >= text_.size());
  }
  if (any_text_from_here()) return false;
  const std::string lower = to_lower(letters);
  if (lower == "and" || lower == "or" || lower == "mod" || lower == "to") return false;
  if (letters.size() > 3) return false;
  // Behind a number two or three letters may be a unit: 5 cm.
  std::size_t i = at_;
  return !(is_digit(last_character()) && read_unit(plain_, i, text_.size(), false));
}

AnswerParser::Maybe AnswerParser::power() {
  return deeper([&]() -> Maybe {
    Maybe base = primary();
    if (!base || !is_plain(*base)) return base;
    Formula of = std::move(base->formula);
    for (int i = 0; i < 20; ++i) {
      if (next() == '!' && !at("!=")) {
        ++at_;
        if (next() == '!') return std::nullopt;
        of = function_of("factorial", one(std::move(of)));
      } else if (accept_command("degree")) {
        of = function_of("degree", one(std::move(of)));
      } else if (next() == '\'' && of.kind == FormulaKind::kSymbol) {
        ++at_;
        of.text += '\'';
      } else if (next() == '^' && at_side()) {
        break;
      } else if (next() == '^') {
        ++at_;
        if (const std::string_view ending = ordinal(); !ending.empty()) continue;
        if (accept("'") || accept("{'}")) {
          of.text += '\'';
          continue;
        }
        MaybeFormula exponent = argument();
        if (!exponent) return std::nullopt;
        of = binary(FormulaKind::kPower, std::move(of), std::move(*exponent));
      } else {
        break;
      }
    }
    return answer_of(std::move(of));
  });
}

std::vector<Formula> AnswerParser::one(Formula of) {
  std::vector<Formula> args;
  args.push_back(std::move(of));
  return args;
}

std::string_view AnswerParser::ordinal() {
  for (const std::string_view ending :
       {"{ th }", "{ st }", "{ nd }", "{ rd }", "{th}", " th ", "th", "st", "nd", "rd"}) {
    const bool is_here = std::string_view(text_).substr(at_).starts_with(ending);
    const std::size_t end = at_ + ending.size();
    if (is_here && (end >= text_.size() || !is_letter(text_[end]))) {
      at_ = end;
      return ending;
    }
  }
  return {};
}

AnswerParser::MaybeFormula AnswerParser::argument() {
  return deeper([this] { return any_argument(); });
}

AnswerParser::MaybeFormula AnswerParser::any_argument() {
  skip();
  if (at_ >= text_.size()) return std::nullopt;
  if (next() == '{') return group();
  if (next() == '-' || next() == '+') {
    const bool is_negative = next() == '-';
    ++at_;
    MaybeFormula of = argument();
    if (of && is_negative) return unary(FormulaKind::kNegative, std::move(*of));
    return of;
  }
  if (next() == '(') {
    Maybe inside = primary();
    if (!inside || !is_plain(*inside)) return std::nullopt;
    return std::move(inside->formula);
  }
  if (is_digit(next())) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return number_formula(text_.substr(begin, at_ - begin));
  }
  if (is_letter(next())) return symbol(1);
  Maybe of = primary();
  if (!of || !is_plain(*of)) return std::nullopt;
  return std::move(of->formula);
}

AnswerParser::MaybeFormula AnswerParser::short_argument() {
  if (is_digit(next())) return number_formula(std::string(1, text_[at_++]));
  return argument();
}

AnswerParser::MaybeFormula AnswerParser::group() {
  return deeper([&]() -> MaybeFormula {
    if (!accept("{")) return std::nullopt;
    const int outside = std::exchange(num_open_integrals_, 0);
    MaybeFormula of = scalar();
    num_open_integrals_ = outside;
    if (of && !over_or_choose(*of)) return std::nullopt;
    if (!of || !accept("}")) return std::nullopt;
    return of;
  });
}

bool AnswerParser::over_or_choose(Formula& top) {
  const std::string name(command());
  if (name != "over" && name != "choose") return true;
  accept_command(name);
  MaybeFormula below = scalar();
  if (!below) return false;
  if (name == "over") {
    top = quotient_of(std::move(top), std::move(*below));
  } else {
    std::vector<Formula> args = one(std::move(top));
    args.push_back(std::move(*below));
    top = function_of("binom", std::move(args));
  }
  return true;
}

}  // namespace slime::reward
