#include "reward/answer_comparison.h"

#include <algorithm>

namespace slime::reward {
namespace {

bool has_formula(const Answer& answer) { return answer.kind == AnswerKind::kFormula; }

}  // namespace

Answer Comparison::simplified(const Answer& answer) {
  Answer out = answer;
  if (has_formula(out) && has_either(out.formula)) return both_signs(out);
  if (out.kind == AnswerKind::kRelation && out.signs[0] == "\\ne") return both_unequal(out);
  if (out.kind == AnswerKind::kRelation) return out;
  if (out.kind != AnswerKind::kList && out.kind != AnswerKind::kSet) return out;
  std::vector<Answer> parts;
  std::vector<std::string> signs;
  for (std::size_t i = 0; i < out.parts.size(); ++i) {
    Answer& part = out.parts[i];
    if (out.kind == AnswerKind::kList && out.parts.size() > 1 && is_domain(part)) continue;
    Answer simple = simplified(part);
    const std::string sign = i > 0 && i - 1 < out.signs.size() ? out.signs[i - 1] : ",";
    if (simple.kind == AnswerKind::kList &&
        (has_formula(part) || part.kind == AnswerKind::kRelation)) {
      for (Answer& each : simple.parts) {
        parts.push_back(std::move(each));
        signs.push_back(sign);
      }
    } else {
      parts.push_back(std::move(simple));
      signs.push_back(sign);
    }
  }
  if (parts.size() == 1 && out.kind == AnswerKind::kList) return std::move(parts[0]);
  out.parts = std::move(parts);
  if (!signs.empty()) signs.erase(signs.begin());
  out.signs = std::move(signs);
  return out;
}

bool Comparison::has_either(const Formula& formula) {
  return any_node(formula, [](const Formula& node) { return node.kind == FormulaKind::kEither; });
}

Answer Comparison::both_unequal(const Answer& relation) {
  const bool has_signs = std::ranges::any_of(relation.parts, [](const Answer& part) {
    return is_plain(part) && has_either(part.formula);
  });
  if (!has_signs) return relation;
  Answer list;
  list.kind = AnswerKind::kList;
  for (const bool is_first : {true, false}) {
    Answer one = relation;
    for (Answer& part : one.parts) part.formula = with_signs(part.formula, is_first);
    list.parts.push_back(std::move(one));
  }
  list.signs = {"and"};
  return list;
}

Answer Comparison::both_signs(const Answer& answer) {
  Answer list;
  list.kind = AnswerKind::kList;
  for (const bool is_first : {true, false}) {
    Answer one = answer;
    one.formula = with_signs(answer.formula, is_first);
    list.parts.push_back(std::move(one));
  }
  list.signs = {"or"};
  return list;
}

bool Comparison::is_domain(const Answer& answer) {
  return answer.kind == AnswerKind::kRelation && answer.signs[0] == "\\in" &&
         answer.parts.size() == 2 && answer.parts[1].kind == AnswerKind::kNumbers &&
         is_plain(answer.parts[0]) && answer.parts[0].formula.kind == FormulaKind::kSymbol;
}

std::vector<std::string> Comparison::parameters(const Answer& answer) {
  std::vector<std::string> names;
  if (answer.kind != AnswerKind::kList) return names;
  for (const Answer& part : answer.parts) {
    if (is_domain(part)) names.push_back(part.parts[0].formula.text);
  }
  return names;
}

Answer Comparison::with_parameters_of(const Answer& truth, const Answer& given) {
  const std::vector<std::string> wanted = parameters(truth);
  const std::vector<std::string> own = parameters(given);
  if (wanted.size() != 1 || own.size() != 1 || wanted == own) return given;
  Answer out = given;
  rename(out, own[0], wanted[0]);
  return out;
}

void Comparison::rename(Answer& answer, const std::string& from, const std::string& to) {
  answer.formula = substituted(answer.formula, from, symbol_formula(to));
  for (Answer& part : answer.parts) rename(part, from, to);
}

std::optional<Comparison::Assignment> Comparison::assignment(const Answer& answer) {
  if (answer.kind != AnswerKind::kRelation) return std::nullopt;
  for (const std::string& sign : answer.signs) {
    if (sign != "=" && sign != "\\equiv" && sign != "\\cong") return std::nullopt;
  }
  const Answer& left = answer.parts.front();
  Assignment out;
  std::size_t first = 0;
  const bool is_named = (is_plain(left) && is_name(left.formula)) || is_name_tuple(left);
  if (is_named) {
    out.name = is_plain(left) ? shape_of(left.formula) : "tuple";
    out.is_function = is_plain(left) && left.formula.kind == FormulaKind::kProduct;
    first = 1;
  }
  for (std::size_t i = first + 1; i < answer.parts.size(); ++i) {
    const bool agree =
        has_formula(answer.parts[i]) && has_formula(answer.parts[i - 1]) &&
        are_equal_formulas(answer.parts[i - 1].formula, answer.parts[i].formula, budget_);
    if (!agree) return std::nullopt;
  }
  out.value = simplified(answer.parts.back());
  return out;
}

bool Comparison::is_name_tuple(const Answer& answer) {
  return answer.kind == AnswerKind::kTuple &&
         std::ranges::all_of(answer.parts, [](const Answer& part) {
           return is_plain(part) && is_name(part.formula);
         });
}

std::optional<std::map<std::string, Answer>> Comparison::assignments(const Answer& answer) {
  std::map<std::string, Answer> out;
  if (answer.kind == AnswerKind::kRelation && answer.parts.size() == 2 &&
      is_name_tuple(answer.parts[0]) && answer.parts[1].kind == AnswerKind::kTuple &&
      answer.parts[0].parts.size() == answer.parts[1].parts.size()) {
    for (std::size_t i = 0; i < answer.parts[0].parts.size(); ++i)
      out[shape_of(answer.parts[0].parts[i].formula)] = answer.parts[1].parts[i];
    return out;
  }
  if (answer.kind != AnswerKind::kList || answer.parts.size() < 2) return std::nullopt;
  for (const Answer& part : answer.parts) {
    std::optional<Assignment> one = assignment(part);
    if (!one || one->name.empty() || !out.emplace(one->name, std::move(one->value)).second)
      return std::nullopt;
  }
  return out;
}

std::optional<Answer> Comparison::values_of_one_name(const Answer& list) {
  Answer out = list;
  std::string name;
  for (Answer& part : out.parts) {
    if (part.kind != AnswerKind::kRelation) continue;
    std::optional<Assignment> one = assignment(part);
    if (!one || (!name.empty() && name != one->name)) return std::nullopt;
    name = one->name;
    part = std::move(one->value);
  }
  if (name.empty()) return std::nullopt;
  return simplified(out);
}

}  // namespace slime::reward
