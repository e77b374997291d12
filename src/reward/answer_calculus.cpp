// Integrals and limits of an answer. They are compared by form (reward/calculus_classes.h), not
// evaluated.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "reward/answer_parser.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr std::size_t kMostDifferentials = 4;

bool is_differential(const Formula& node) {
  return node.kind == FormulaKind::kSymbol && node.text == "d";
}

/// Takes "d x" out of a product somewhere in the formula, as of "\frac{dx}{x+1}". False: there is none.
bool take_differential(Formula& formula, std::string& variable) {
  if (formula.kind == FormulaKind::kProduct) {
    for (std::size_t i = 0; i + 1 < formula.args.size(); ++i) {
      if (!is_differential(formula.args[i]) || formula.args[i + 1].kind != FormulaKind::kSymbol)
        continue;
      variable = formula.args[i + 1].text;
      const auto begin = formula.args.begin() + static_cast<std::ptrdiff_t>(i);
      formula.args.erase(begin, begin + 2);
      if (formula.args.empty()) formula = number_formula("1");
      return true;
    }
  }
  // Of a quotient or a product, not below a root or in a sum.
  if (formula.kind != FormulaKind::kProduct && formula.kind != FormulaKind::kNegative) return false;
  for (Formula& arg : formula.args)
    if (take_differential(arg, variable)) return true;
  return false;
}

}  // namespace

bool AnswerParser::at_differential() {
  if (num_open_integrals_ == 0 || next() != 'd') return false;
  const std::string_view letters = word();
  if (letters.size() > 1)
    return letters.size() % 2 == 0 && (letters.size() == 2 || letters[2] == 'd');
  std::size_t i = at_ + 1;
  while (i < text_.size() && text_[i] == ' ') ++i;
  if (i >= text_.size()) return false;
  if (text_[i] != '\\')
    return is_letter(text_[i]) && (i + 1 == text_.size() || !is_letter(text_[i + 1]));
  std::size_t end = i + 1;
  while (end < text_.size() && is_letter(text_[end])) ++end;
  return is_symbol_command(std::string_view(text_).substr(i + 1, end - i - 1));
}

std::string AnswerParser::differential() {
  skip();
  ++at_;  // the d
  skip();
  if (at_ < text_.size() && text_[at_] == '\\') {
    const std::string name(command());
    accept_command(name);
    return "\\" + name;
  }
  return std::string(1, text_[at_++]);
}

bool AnswerParser::bounds(MaybeFormula& lower, MaybeFormula& upper) {
  accept_command("limits");
  accept_command("nolimits");
  const int outside = std::exchange(num_open_integrals_, 0);
  bool is_fine = true;
  for (int i = 0; is_fine && i < 2; ++i) {
    MaybeFormula* bound = nullptr;
    if (next() == '_' && !lower) bound = &lower;
    if (next() == '^' && !upper) bound = &upper;
    if (bound == nullptr) break;
    ++at_;
    *bound = short_argument();
    is_fine = bound->has_value();
  }
  num_open_integrals_ = outside;
  return is_fine;
}

/// "int", "iint", ...: with both bounds the variable is bound; otherwise it keeps its name.
AnswerParser::MaybeFormula AnswerParser::integral(const std::string& name) {
  MaybeFormula lower, upper;
  if (!bounds(lower, upper)) return std::nullopt;
  ++num_open_integrals_;
  Maybe body = at_differential() ? Maybe(answer_of(number_formula("1"))) : expression();
  std::vector<std::string> variables;
  while (body && at_differential() && variables.size() < kMostDifferentials) {
    variables.push_back(differential());
    if (name == "int") break;
    accept("*");
  }
  --num_open_integrals_;
  if (!body || !is_plain(*body)) return std::nullopt;
  if (variables.empty()) {
    std::string variable;
    if (!take_differential(body->formula, variable)) return std::nullopt;
    variables.push_back(std::move(variable));
  }
  if (name == "int" && lower && upper) {
    Formula out{FormulaKind::kSeries, "int"};
    out.args.push_back(symbol_formula(variables.front()));
    out.args.push_back(std::move(*lower));
    out.args.push_back(std::move(*upper));
    out.args.push_back(std::move(body->formula));
    return out;
  }
  std::vector<Formula> args = one(std::move(body->formula));
  for (std::string& variable : variables) args.push_back(symbol_formula(std::move(variable)));
  // What stands below and above is the name of a domain, or one bound.
  std::string text = name;
  if (lower) text += "_";
  if (upper) text += "^";
  for (MaybeFormula* bound : {&lower, &upper})
    if (*bound) args.push_back(std::move(**bound));
  return function_of("\\" + text, std::move(args));
}

bool AnswerParser::at_side() const {
  std::size_t i = at_ + 1;
  std::string rest;
  while (i < text_.size() && rest.size() < 3) {
    if (text_[i] != ' ') rest += text_[i];
    ++i;
  }
  return rest.starts_with("+}") || rest.starts_with("-}") || rest == "{+}" || rest == "{-}";
}

AnswerParser::MaybeFormula AnswerParser::limit() {
  accept_command("limits");
  if (!accept("_") || !accept("{")) return std::nullopt;
  skip();
  MaybeFormula variable = is_letter(next()) ? symbol(1) : std::nullopt;
  if (!variable || variable->kind != FormulaKind::kSymbol) return std::nullopt;
  if (!accept_command("to") && !accept_command("rightarrow") && !accept("->")) return std::nullopt;
  MaybeFormula point = scalar();
  if (!point) return std::nullopt;
  std::string side = "0";
  if (next() == '^') {
    ++at_;
    const bool has_brace = accept("{");
    side = next() == '+' ? "1" : "2";
    ++at_;
    if (has_brace && !accept("}")) return std::nullopt;
  }
  if (!accept("}")) return std::nullopt;
  Maybe body = product();
  if (!body || !is_plain(*body)) return std::nullopt;
  Formula out{FormulaKind::kSeries, "lim"};
  out.args.push_back(std::move(*variable));
  out.args.push_back(std::move(*point));
  out.args.push_back(number_formula(std::move(side)));
  out.args.push_back(std::move(body->formula));
  return out;
}

}  // namespace slime::reward
