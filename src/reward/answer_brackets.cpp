#include "reward/answer_parser.h"

#include <utility>

namespace slime::reward {
namespace {

/// Determinant by the first row; nothing for what is not square or larger than 4.
std::optional<Formula> determinant(const std::vector<Formula>& cells, std::size_t size) {
  if (size == 0 || size > 4 || cells.size() != size * size) return std::nullopt;
  if (size == 1) return cells[0];
  Formula sum{FormulaKind::kSum, ""};
  for (std::size_t column = 0; column < size; ++column) {
    std::vector<Formula> minor;
    for (std::size_t i = size; i < cells.size(); ++i) {
      if (i % size != column) minor.push_back(cells[i]);
    }
    Formula term = binary(FormulaKind::kProduct, cells[column], *determinant(minor, size - 1));
    sum.args.push_back(column % 2 == 0 ? std::move(term)
                                       : unary(FormulaKind::kNegative, std::move(term)));
  }
  return sum;
}

}  // namespace

AnswerParser::Maybe AnswerParser::bracketed() {
  const std::string open(1, text_[at_]);
  ++at_;
  const int bars = std::exchange(num_bars_, 0);
  const bool is_french = open == "]";
  const bool builder = std::exchange(in_builder_, false);
  Maybe inside = list(is_french ? "[]" : ")][");
  in_builder_ = builder;
  num_bars_ = bars;
  if (!inside) return std::nullopt;
  skip();
  if (at_ >= text_.size()) return std::nullopt;
  const char close = text_[at_];
  if (close != ')' && close != ']' && close != '[') return std::nullopt;
  ++at_;
  const bool is_group = (open == "(" && close == ')') || (open == "[" && close == ']');
  if (inside->kind != AnswerKind::kList) {
    if (is_group) return inside;
    return std::nullopt;
  }
  if (inside->parts.empty()) return std::nullopt;
  Answer tuple;
  tuple.kind = AnswerKind::kTuple;
  tuple.open = is_french ? "(" : open;
  tuple.close = close == '[' ? ")" : std::string(1, close);
  tuple.parts = std::move(inside->parts);
  return tuple;
}

AnswerParser::Maybe AnswerParser::braced() {
  ++at_;
  Maybe inside = list("}");
  if (inside && is_plain(*inside) && !over_or_choose(inside->formula)) return std::nullopt;
  if (!inside || !accept("}")) return std::nullopt;
  if (inside->kind != AnswerKind::kList) return inside;
  if (inside->parts.empty()) return std::nullopt;
  inside->kind = AnswerKind::kSet;
  return inside;
}

AnswerParser::Maybe AnswerParser::set() {
  at_ += 2;
  if (command() == "begin") {
    // One large brace in front of rows.
    std::string name;
    if (!environment("begin", name)) return std::nullopt;
    Maybe rows = system(name);
    if (rows) accept("\\}");
    return rows;
  }
  Answer out;
  const std::size_t begin = at_;
  const int depth = depth_;
  const bool outer = std::exchange(in_builder_, true);
  ++num_sets_;
  Maybe inside = list("}|:");
  --num_sets_;
  if (inside && (accept("|") || accept_command("mid") || accept(":"))) {
    in_builder_ = false;
    Maybe condition = list("}");
    in_builder_ = outer;
    if (!condition || !accept("\\}")) return std::nullopt;
    out.kind = AnswerKind::kBuilder;
    out.parts.push_back(std::move(*inside));
    out.parts.push_back(std::move(*condition));
    return out;
  }
  // Bars and colons belong to the elements; looked at again for the outermost set alone.
  if ((!inside || !at("\\}")) && num_sets_ == 0) {
    in_builder_ = false;
    at_ = begin;
    depth_ = depth;
    ++num_sets_;
    inside = list("}");
    --num_sets_;
  }
  in_builder_ = outer;
  if (!inside || !accept("\\}")) return std::nullopt;
  if (inside->kind == AnswerKind::kList) {
    inside->kind = AnswerKind::kSet;
    return inside;
  }
  out.kind = AnswerKind::kSet;
  out.parts.push_back(std::move(*inside));
  return out;
}

AnswerParser::Maybe AnswerParser::bars() {
  ++at_;
  ++num_bars_;
  MaybeFormula inside = scalar();
  --num_bars_;
  if (!inside || !accept("|")) return std::nullopt;
  return answer_of(function_of("abs", one(std::move(*inside))));
}

AnswerParser::Maybe AnswerParser::matrix() {
  std::string name;
  if (!environment("begin", name)) return std::nullopt;
  for (const char* rows : {"cases", "aligned", "align", "gathered", "split"}) {
    if (name == rows) return system(name);
  }
  const bool is_determinant = name == "vmatrix";
  if (name != "pmatrix" && name != "bmatrix" && name != "matrix" && name != "array" &&
      name != "Bmatrix" && name != "smallmatrix" && !is_determinant) {
    return std::nullopt;
  }
  Answer out;
  out.kind = AnswerKind::kMatrix;
  std::size_t in_row = 0;
  while (true) {
    std::string end_name;
    if (command() == "end") {
      if (!environment("end", end_name) || end_name != name) return std::nullopt;
      break;
    }
    MaybeFormula cell = scalar();
    if (!cell || out.parts.size() == kMostAnswerParts) return std::nullopt;
    out.parts.push_back(answer_of(std::move(*cell)));
    ++in_row;
    if (accept("&")) continue;
    const bool ends_row = accept("\\\\");
    if (!ends_row && command() != "end") return std::nullopt;
    if (out.columns == 0) out.columns = in_row;
    if (in_row != out.columns) return std::nullopt;
    in_row = 0;
  }
  if (out.columns == 0 || in_row != 0) return std::nullopt;  // a row without its end
  if (!is_determinant) return out;
  std::vector<Formula> cells;
  for (Answer& part : out.parts) cells.push_back(std::move(part.formula));
  return maybe_answer(determinant(cells, out.columns));
}

AnswerParser::Maybe AnswerParser::system(const std::string& name) {
  Maybe rows = list("\\");
  std::string end_name;
  if (!rows || !environment("end", end_name) || end_name != name) return std::nullopt;
  return rows;
}

bool AnswerParser::environment(std::string_view which, std::string& name) {
  if (!accept_command(which) || !accept("{")) return false;
  name = word();
  at_ += name.size();
  return accept("}");
}

}  // namespace slime::reward
