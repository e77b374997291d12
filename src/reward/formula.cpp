#include "reward/formula.h"

#include <algorithm>
#include <set>

namespace slime::reward {
namespace {

void collect_symbols(const Formula& formula, std::set<std::string>& names) {
  if (formula.kind == FormulaKind::kSymbol) names.insert(formula.text);
  if (formula.kind != FormulaKind::kSeries) {
    for (const Formula& arg : formula.args) collect_symbols(arg, names);
    return;
  }
  std::set<std::string> of_body;
  collect_symbols(formula.args[3], of_body);
  of_body.erase(formula.args[0].text);
  names.merge(of_body);
  collect_symbols(formula.args[1], names);
  collect_symbols(formula.args[2], names);
}

/// The tree with each node replaced by what `change` makes of it and its changed args.
template <typename Change>
Formula mapped(const Formula& formula, const Change& change) {
  Formula copy{formula.kind, formula.text};
  copy.args.reserve(formula.args.size());
  for (const Formula& arg : formula.args) copy.args.push_back(mapped(arg, change));
  return change(std::move(copy));
}

}  // namespace

Formula number_formula(std::string text) { return {FormulaKind::kNumber, std::move(text)}; }
Formula symbol_formula(std::string name) { return {FormulaKind::kSymbol, std::move(name)}; }

Formula unary(FormulaKind kind, Formula of) {
  Formula out{kind, ""};
  out.args.push_back(std::move(of));
  return out;
}

Formula binary(FormulaKind kind, Formula a, Formula b) {
  Formula out{kind, ""};
  out.args.push_back(std::move(a));
  out.args.push_back(std::move(b));
  return out;
}

Formula function_of(std::string name, std::vector<Formula> args) {
  return {FormulaKind::kFunction, std::move(name), std::move(args)};
}

Formula difference_of(Formula a, Formula b) {
  return binary(FormulaKind::kSum, std::move(a), unary(FormulaKind::kNegative, std::move(b)));
}

Formula quotient_of(Formula a, Formula b) {
  return binary(FormulaKind::kProduct, std::move(a), unary(FormulaKind::kInverse, std::move(b)));
}

std::string shape_of(const Formula& formula) {
  std::string out(1, static_cast<char>('A' + static_cast<int>(formula.kind)));
  out += formula.text;
  if (formula.args.empty()) return out + ";";
  out += '(';
  for (const Formula& arg : formula.args) out += shape_of(arg);
  return out + ')';
}

std::size_t size_of(const Formula& formula) {
  std::size_t size = 1;
  for (const Formula& arg : formula.args) size += size_of(arg);
  return size;
}

std::vector<std::string> symbols_of(const Formula& formula) {
  std::set<std::string> names;
  collect_symbols(formula, names);
  return {names.begin(), names.end()};
}

bool any_node(const Formula& formula, bool (*holds)(const Formula& node)) {
  return holds(formula) || std::ranges::any_of(formula.args, [holds](const Formula& arg) {
           return any_node(arg, holds);
         });
}

Formula substituted(const Formula& formula, std::string_view name, const Formula& value) {
  return mapped(formula, [&](Formula node) {
    return node.kind == FormulaKind::kSymbol && node.text == name ? value : std::move(node);
  });
}

Formula renamed(const Formula& formula) {
  return mapped(formula, [](Formula node) {
    if (node.kind == FormulaKind::kSymbol) node.text += '~';
    return node;
  });
}

Formula with_signs(const Formula& formula, bool is_first) {
  return mapped(formula, [is_first](Formula node) {
    if (node.kind != FormulaKind::kEither) return node;
    const bool is_plus = (node.text == "+") == is_first;
    Formula of = std::move(node.args[0]);
    return is_plus ? of : unary(FormulaKind::kNegative, std::move(of));
  });
}

bool is_name(const Formula& formula) {
  switch (formula.kind) {
    case FormulaKind::kSymbol:
    case FormulaKind::kE:
    case FormulaKind::kI:
      return true;
    case FormulaKind::kProduct:
      return std::ranges::all_of(formula.args, [](const Formula& arg) {
        // The f^{-1} of f^{-1}(x).
        const bool is_inverse =
            arg.kind == FormulaKind::kPower && is_name(arg.args[0]) &&
            shape_of(arg.args[1]) == shape_of(unary(FormulaKind::kNegative, number_formula("1")));
        return is_inverse || is_name(arg);
      });
    default:
      return false;
  }
}

}  // namespace slime::reward
