#include "text/jinja/ast.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/token_stream.h"

namespace slime::text::jinja::ast {
namespace {

// Evaluation and destruction recurse this deep.
constexpr int kMaxTreeDepth = 300;

void deepen(Expression& parent, const ExpressionPtr& child) {
  if (child) parent.depth = std::max(parent.depth, child->depth + 1);
}

void deepen(Expression& parent, const CallArguments& arguments) {
  for (const auto& value : arguments.positional) deepen(parent, value);
  for (const auto& [name, value] : arguments.named) deepen(parent, value);
  deepen(parent, arguments.splat);
  deepen(parent, arguments.double_splat);
}

struct Deepen {
  Expression& parent;
  void operator()(const Constant&) const {}
  void operator()(const Name&) const {}
  void operator()(const BlockText&) const {}
  void operator()(const ListLiteral& list) const { each(list.items); }
  void operator()(const DictLiteral& dict) const {
    for (const auto& [key, value] : dict.members) {
      deepen(parent, key);
      deepen(parent, value);
    }
  }
  void operator()(const Attribute& node) const { deepen(parent, node.object); }
  void operator()(const Subscript& node) const { both(node.object, node.key); }
  void operator()(const Slice& node) const {
    both(node.object, node.start);
    both(node.stop, node.step);
  }
  void operator()(const Call& node) const { with(node.callee, node.arguments); }
  void operator()(const Filter& node) const { with(node.input, node.arguments); }
  void operator()(const Test& node) const { with(node.input, node.arguments); }
  void operator()(const Unary& node) const { deepen(parent, node.operand); }
  void operator()(const Binary& node) const { both(node.left, node.right); }
  void operator()(const Logical& node) const { both(node.left, node.right); }
  void operator()(const Concat& node) const { each(node.parts); }
  void operator()(const Compare& node) const {
    deepen(parent, node.first);
    for (const auto& [op, value] : node.rest) deepen(parent, value);
  }
  void operator()(const Conditional& node) const {
    both(node.condition, node.then);
    deepen(parent, node.otherwise);
  }

 private:
  void each(const std::vector<ExpressionPtr>& items) const {
    for (const auto& item : items) deepen(parent, item);
  }
  void both(const ExpressionPtr& a, const ExpressionPtr& b) const {
    deepen(parent, a);
    deepen(parent, b);
  }
  void with(const ExpressionPtr& value, const CallArguments& arguments) const {
    deepen(parent, value);
    deepen(parent, arguments);
  }
};

}  // namespace

ExpressionPtr make_expression(int line, decltype(Expression::node) node) {
  auto expression = std::make_unique<Expression>();
  expression->line = line;
  expression->node = std::move(node);
  std::visit(Deepen{*expression}, expression->node);
  if (expression->depth > kMaxTreeDepth) {
    throw SyntaxError{fmt::format("an expression nests deeper than {}", kMaxTreeDepth), line};
  }
  return expression;
}

}  // namespace slime::text::jinja::ast
