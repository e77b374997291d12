#include "reward/answer_parser.h"
#include "reward/python_text.h"

namespace slime::reward {

AnswerParser::Maybe AnswerParser::quantity() {
  std::optional<Unit> money;
  const std::size_t begin = at_;
  const bool is_negative = at("-") && [&] {
    const std::size_t here = at_;
    ++at_;
    const bool is_money = !command().empty() && currency_name(command()) != nullptr;
    if (!is_money) at_ = here;
    return is_money;
  }();
  if (const char* name = currency_name(command())) {
    at_ += command().size() + 1;
    money = currency(name);
  }
  if (!money) at_ = begin;
  Maybe value = expression();
  if (!value) return std::nullopt;
  if (is_negative && is_plain(*value))
    value->formula = unary(FormulaKind::kNegative, std::move(value->formula));
  if (value->kind != AnswerKind::kFormula) return value;
  if (!unit_behind(*value)) return std::nullopt;
  if (money && (!value->unit || value->unit->has_count)) value->unit = money;
  if (accept_command("pmod") || accept_command("bmod") || at("(mod"))
    return residue(std::move(*value));
  return value;
}

const char* AnswerParser::currency_name(std::string_view command) {
  if (command == "dollar") return "dollar";
  if (command == "euro") return "euro";
  if (command == "pounds") return "pound sterling";
  if (command == "yen") return "yen";
  return nullptr;
}

AnswerParser::Maybe AnswerParser::residue(Answer of) {
  Answer out;
  out.kind = AnswerKind::kResidue;
  out.text = std::string_view(text_).substr(0, at_).ends_with("bmod") ? "bmod" : "pmod";
  if (accept("(mod")) {
    MaybeFormula by = scalar();
    if (!by || !accept(")")) return std::nullopt;
    out.parts.push_back(std::move(of));
    out.parts.push_back(answer_of(std::move(*by)));
    return out;
  }
  MaybeFormula by = scalar();
  if (!by) return std::nullopt;
  out.parts.push_back(std::move(of));
  out.parts.push_back(answer_of(std::move(*by)));
  return out;
}

bool AnswerParser::unit_behind(Answer& value) {
  if (accept("%")) {
    value.unit = Unit{};
    value.unit->is_percent = true;
    return true;
  }
  // A sum of degrees stays one formula; a number of them has them as its unit.
  if (value.formula.kind == FormulaKind::kFunction && value.formula.text == "degree") {
    Formula of = std::move(value.formula.args[0]);
    value.formula = std::move(of);
    value.unit = Unit{};
    value.unit->is_degree = true;
    return true;
  }
  if (value.formula.kind == FormulaKind::kNegative &&
      value.formula.args[0].kind == FormulaKind::kFunction &&
      value.formula.args[0].text == "degree") {
    Formula of = std::move(value.formula.args[0].args[0]);
    value.formula = unary(FormulaKind::kNegative, std::move(of));
    value.unit = Unit{};
    value.unit->is_degree = true;
    return true;
  }
  for (const auto& [name, text] :
       {std::pair<std::string_view, const char*>{"dollar", "dollar"}, {"euro", "euro"}}) {
    if (accept_command(name)) {
      value.unit = currency(text);
      return true;
    }
  }
  const bool is_number = !any_node(value.formula, [](const Formula& node) {
    return node.kind == FormulaKind::kSymbol || node.kind == FormulaKind::kInfinity;
  });
  if (!is_letter(next())) return true;
  // "10th", "7^{th}" went with the number; here words.
  std::string lower = to_lower(word());
  if (lower == "and" || lower == "or" || lower == "mod" || lower == "to") return true;
  if (half_of_day()) return true;  // "9 a.m.": read by ratio()
  if (lower == "choose" || lower == "if" || lower == "where" || lower == "for") return false;
  if (const auto factor = multiplier(lower)) {
    at_ += lower.size();
    value.formula =
        binary(FormulaKind::kProduct, std::move(value.formula), number_formula(*factor));
    if (!is_letter(next())) return true;
    lower = to_lower(word());
    if (lower == "and" || lower == "or") return true;
  }
  if (!is_number && !any_text_from_here()) return false;
  std::optional<Unit> unit = read_unit(plain_, at_, text_.size(), /*may_count=*/true);
  if (!unit) return false;
  // "1 hour 30 minutes"
  if (!unit->has_count && is_digit(next())) {
    Maybe rest = expression();
    if (!rest || rest->kind != AnswerKind::kFormula || !unit_behind(*rest) || !rest->unit ||
        rest->unit->powers != unit->powers) {
      return false;
    }
    Formula sum = binary(FormulaKind::kSum, in_base_units(value.formula, *unit),
                         in_base_units(rest->formula, *rest->unit));
    value.formula = std::move(sum);
    unit->numerator = unit->denominator = "1";
  }
  if (unit->is_none()) unit.reset();
  value.unit = std::move(unit);
  return true;
}

bool AnswerParser::half_of_day() {
  const std::string rest = to_lower(std::string_view(text_).substr(at_, 5));
  for (const char* each : {"a.m", "p.m", "am", "pm", "a. m", "p. m"}) {
    if (rest.starts_with(each)) return true;
  }
  return false;
}

bool AnswerParser::any_text_from_here() {
  return at_ < plain_.is_text.size() && plain_.is_text[at_];
}

Formula AnswerParser::in_base_units(const Formula& value, const Unit& unit) {
  return quotient_of(binary(FormulaKind::kProduct, value, number_formula(unit.numerator)),
                     number_formula(unit.denominator));
}

}  // namespace slime::reward
