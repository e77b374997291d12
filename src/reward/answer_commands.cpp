#include "reward/answer_parser.h"
#include "reward/python_text.h"

namespace slime::reward {

AnswerParser::Maybe AnswerParser::commanded() {
  if (at("\\{")) return set();
  const std::string name(command());
  if (name.empty()) return std::nullopt;
  if (name == "begin") return matrix();
  const std::size_t here = at_;
  at_ += name.size() + 1;
  if (name == "frac") {
    MaybeFormula top = short_argument();
    MaybeFormula bottom = top ? short_argument() : std::nullopt;
    if (!bottom) return std::nullopt;
    return answer_of(quotient_of(std::move(*top), std::move(*bottom)));
  }
  if (name == "binom") {
    MaybeFormula top = short_argument();
    MaybeFormula bottom = top ? short_argument() : std::nullopt;
    if (!bottom) return std::nullopt;
    std::vector<Formula> args = one(std::move(*top));
    args.push_back(std::move(*bottom));
    return answer_of(function_of("binom", std::move(args)));
  }
  if (name == "pi") return answer_of({FormulaKind::kPi, ""});
  if (name == "infty") return answer_of({FormulaKind::kInfinity, ""});
  if (name == "emptyset") {
    Answer empty;
    empty.kind = AnswerKind::kSet;
    return empty;
  }
  if (name == "ldots") {
    Answer dots;
    dots.kind = AnswerKind::kEllipsis;
    return dots;
  }
  for (const char* numbers : {"reals", "integers", "naturals", "rationals", "complexes"}) {
    if (name != numbers) continue;
    Answer set;
    set.kind = AnswerKind::kNumbers;
    set.text = "\\" + name;
    if (next() == '^' || next() == '_') {
      ++at_;
      const std::optional<std::string> kind = index_text();
      if (!kind) {
        if (!accept("+") && !accept("*")) return std::nullopt;
        set.text += "+";
      } else {
        set.text += *kind;
      }
    }
    return set;
  }
  if (name == "langle") {
    Maybe inside = list("\\");
    if (!inside || !accept_command("rangle") || inside->kind != AnswerKind::kList)
      return std::nullopt;
    inside->kind = AnswerKind::kTuple;
    inside->open = "(";
    inside->close = ")";
    return inside;
  }
  if (name == "lfloor" || name == "lceil") {
    MaybeFormula inside = scalar();
    if (!inside || !accept_command(name == "lfloor" ? "rfloor" : "rceil")) return std::nullopt;
    return answer_of(function_of(name == "lfloor" ? "floor" : "ceil", one(std::move(*inside))));
  }
  if (name == "sum" || name == "prod") return maybe_answer(series(name));
  if (name == "int" || name == "iint" || name == "iiint" || name == "oint")
    return maybe_answer(integral(name));
  if (name == "lim") return maybe_answer(limit());
  if (name == "angle" || name == "triangle" || name == "odot") {
    // The name of a figure.
    accept("{");
    const std::string figure(word());
    if (figure.empty() || figure.size() > 5) return std::nullopt;
    at_ += figure.size();
    accept("}");
    return answer_of(symbol_formula("\\" + name + figure));
  }
  if (name == "overline" || name == "vec" || name == "hat" || name == "bar" ||
      name == "overrightarrow" || name == "widehat" || name == "tilde" || name == "dot") {
    const std::optional<std::string> inside = index_text_after_space();
    if (!inside) return std::nullopt;
    return maybe_answer(indexed("\\" + name + "{" + *inside + "}"));
  }
  if (is_symbol_command(name)) return maybe_answer(indexed("\\" + name));
  if (is_function_name(name)) return maybe_answer(function(name));
  at_ = here;
  return std::nullopt;
}

std::optional<std::string> AnswerParser::index_text_after_space() {
  skip();
  return index_text();
}

AnswerParser::MaybeFormula AnswerParser::series(const std::string& name) {
  if (!accept("_") || !accept("{")) return std::nullopt;
  const std::string_view variable = word();
  if (variable.size() != 1) return std::nullopt;
  Formula index = symbol_formula(std::string(variable));
  ++at_;
  if (!accept("=")) return std::nullopt;
  MaybeFormula from = scalar();
  if (!from || !accept("}") || !accept("^")) return std::nullopt;
  MaybeFormula to = argument();
  if (!to) return std::nullopt;
  Maybe body = product();
  if (!body || !is_plain(*body)) return std::nullopt;
  Formula out{FormulaKind::kSeries, name};
  // The variable may be named like a constant.
  if (index.text == "i") {
    body->formula = with_constant_as_symbol(std::move(body->formula));
  }
  out.args.push_back(std::move(index));
  out.args.push_back(std::move(*from));
  out.args.push_back(std::move(*to));
  out.args.push_back(std::move(body->formula));
  return out;
}

Formula AnswerParser::with_constant_as_symbol(Formula of) {
  if (of.kind == FormulaKind::kI) return symbol_formula("i");
  for (Formula& arg : of.args) arg = with_constant_as_symbol(std::move(arg));
  return of;
}

AnswerParser::MaybeFormula AnswerParser::function(std::string name) {
  if (name == "sqrt") return square_root();
  if (name == "lg") name = "log";
  if (name == "asin" || name == "acos" || name == "atan") name = "arc" + name.substr(1);
  MaybeFormula base;
  if (name == "log" && next() == '_') {
    ++at_;
    base = argument();
    if (!base) return std::nullopt;
  }
  MaybeFormula exponent;
  if (next() == '^') {
    ++at_;
    exponent = argument();
    if (!exponent) return std::nullopt;
  }
  std::vector<Formula> args;
  const bool has_brackets = next() == '(';
  if (has_brackets || (name == "binom" && next() == '{')) {
    Maybe inside = has_brackets ? bracketed() : braced();
    if (!inside) return std::nullopt;
    if (inside->kind == AnswerKind::kTuple) {
      for (Answer& part : inside->parts) {
        if (!is_plain(part)) return std::nullopt;
        args.push_back(std::move(part.formula));
      }
    } else {
      if (inside->kind != AnswerKind::kFormula) return std::nullopt;
      const bool is_degree = inside->unit && inside->unit->is_degree;
      if (inside->unit && !is_degree && !inside->unit->is_radian) return std::nullopt;
      Formula of = std::move(inside->formula);
      if (is_degree) of = function_of("degree", one(std::move(of)));
      args = one(std::move(of));
    }
  } else {
    MaybeFormula of = function_argument();
    if (!of) return std::nullopt;
    args = one(std::move(*of));
  }
  if (base) args.push_back(std::move(*base));
  return applied(std::move(name), std::move(args), std::move(exponent));
}

AnswerParser::MaybeFormula AnswerParser::applied(std::string name, std::vector<Formula> args,
                                                 MaybeFormula exponent) {
  const std::size_t count = args.size();
  const bool takes_many = name == "gcd" || name == "lcm" || name == "max" || name == "min";
  const std::size_t wanted = name == "binom" ? 2 : 1;
  if (takes_many ? count < 2 : count != wanted && !(name == "log" && count == 2))
    return std::nullopt;
  if (exponent && exponent->kind == FormulaKind::kNegative &&
      exponent->args[0].kind == FormulaKind::kNumber && exponent->args[0].text == "1" &&
      name.size() == 3 && name != "log" && name != "exp") {
    name = "arc" + name;
    exponent.reset();
  }
  Formula of = name == "exp"
                   ? binary(FormulaKind::kPower, Formula{FormulaKind::kE, ""}, std::move(args[0]))
                   : function_of(std::move(name), std::move(args));
  if (exponent) of = binary(FormulaKind::kPower, std::move(of), std::move(*exponent));
  return of;
}

AnswerParser::MaybeFormula AnswerParser::function_argument() {
  Formula all{FormulaKind::kProduct, ""};
  bool is_negative = accept("-");
  while (true) {
    Maybe factor = power();
    if (!factor || !is_plain(*factor)) return std::nullopt;
    all.args.push_back(std::move(factor->formula));
    if (all.args.size() > 50) return std::nullopt;
    if (at("/") && all.args.size() == 1 && !is_letter(last_character())) {
      accept("/");
      Maybe below = power();
      if (!below || !is_plain(*below)) return std::nullopt;
      all.args.push_back(unary(FormulaKind::kInverse, std::move(below->formula)));
      break;
    }
    if (next() == '(' || next() == '|' || next() == '{' || !starts_factor()) break;
    if (is_function_name(next() == '\\' ? command() : word()) && command() != "sqrt") {
      break;
    }
  }
  Formula of = all.args.size() == 1 ? std::move(all.args[0]) : std::move(all);
  return is_negative ? unary(FormulaKind::kNegative, std::move(of)) : std::move(of);
}

AnswerParser::MaybeFormula AnswerParser::square_root() {
  MaybeFormula index = number_formula("2");
  if (next() == '[') {
    ++at_;
    index = scalar();
    if (!index || !accept("]")) return std::nullopt;
  }
  MaybeFormula of = short_argument();
  if (!of) return std::nullopt;
  return binary(FormulaKind::kRoot, std::move(*of), std::move(*index));
}

}  // namespace slime::reward
