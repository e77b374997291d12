#include "reward/calculus_classes.h"

#include <algorithm>
#include <string>
#include <utility>

namespace slime::reward {

bool is_calculus_node(const Formula& node) {
  if (node.kind == FormulaKind::kSeries) return node.text == "int" || node.text == "lim";
  return node.kind == FormulaKind::kFunction && node.text.starts_with('\\');
}

Formula CalculusClasses::abstracted(const Formula& formula, int depth) {
  if (!any_node(formula, is_calculus_node)) return formula;
  Formula out = formula;
  const bool is_own = is_calculus_node(formula);
  if (is_own && formula.kind == FormulaKind::kSeries) {
    // No symbol of an answer has this name. Inner nodes are renamed after their outer ones.
    const Formula bound = symbol_formula("#" + std::to_string(depth));
    out.args[3] = substituted(formula.args[3], formula.args[0].text, bound);
    out.args[0] = bound;
  }
  for (Formula& arg : out.args) arg = abstracted(arg, depth + (is_own ? 1 : 0));
  return is_own ? unknown_of(std::move(out)) : out;
}

Formula CalculusClasses::unknown_of(Formula node) {
  const auto same = std::ranges::find_if(known_, [&](const Formula& known) {
    return known.kind == node.kind && known.text == node.text &&
           std::ranges::equal(known.args, node.args, are_equal_);
  });
  const std::string name = "\\unknown" + std::to_string(same - known_.begin());
  if (same == known_.end()) known_.push_back(std::move(node));
  return symbol_formula(name);
}

}  // namespace slime::reward
