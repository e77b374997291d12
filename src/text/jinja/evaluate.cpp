// The expression half of the interpreter.

#include <fmt/format.h>

#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"

namespace slime::text::jinja {

struct ExpressionVisitor {
  Interpreter& run;
  Scope& scope;
  template <typename Node>
  Value operator()(const Node& node) const {
    return run.evaluate_node(node, scope);
  }
};

Value Interpreter::evaluate(const ast::ExpressionPtr& expression, Scope& scope) {
  const DepthGuard guard(depth_, budget_.limits().depth);
  budget_.take_steps();
  line_ = expression->line;
  return std::visit(ExpressionVisitor{*this, scope}, expression->node);
}

Value Interpreter::evaluate_node(const ast::Constant& node, Scope&) { return node.value; }

Value Interpreter::evaluate_node(const ast::Name& node, Scope& scope) {
  if (const Value* value = scope.find(node.name, budget_)) return *value;
  return make_undefined(fmt::format("{} is undefined", repr_of_text(node.name)));
}

Value Interpreter::evaluate_node(const ast::ListLiteral& node, Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& item : node.items) items.push_back(evaluate(item, scope));
  budget_.take_bytes(items.size() * sizeof(Value));
  return node.is_tuple ? make_tuple(std::move(items)) : make_list(std::move(items));
}

Value Interpreter::evaluate_node(const ast::DictLiteral& node, Scope& scope) {
  std::vector<std::pair<Value, Value>> members;
  for (const auto& [key_node, value_node] : node.members) {
    Value key = evaluate(key_node, scope);
    Value value = evaluate(value_node, scope);
    if (!is_hashable(key, budget_))
      fail_type(fmt::format("unhashable type: '{}'", key.type_name()));
    bool replaced = false;
    for (auto& [old_key, old_value] : members) {
      if (!equal(old_key, key, budget_)) continue;
      old_value = value;
      replaced = true;
    }
    if (!replaced) members.emplace_back(std::move(key), std::move(value));
  }
  budget_.take_bytes(members.size() * 2 * sizeof(Value));
  return make_dict(std::move(members));
}

Value Interpreter::evaluate_node(const ast::Attribute& node, Scope& scope) {
  return attribute(evaluate(node.object, scope), node.name);
}

Value Interpreter::evaluate_node(const ast::Subscript& node, Scope& scope) {
  const Value object = evaluate(node.object, scope);
  const Value key = evaluate(node.key, scope);
  return item(object, key);
}

Value Interpreter::evaluate_node(const ast::Slice& node, Scope& scope) {
  const Value object = evaluate(node.object, scope);
  const auto bound = [&](const ast::ExpressionPtr& part) {
    return part ? evaluate(part, scope) : Value(None{});
  };
  const Value start = bound(node.start);
  const Value stop = bound(node.stop);
  const Value step = bound(node.step);
  return slice(object, start, stop, step, budget_);
}

Arguments Interpreter::evaluate(const ast::CallArguments& nodes, Scope& scope) {
  Arguments arguments;
  arguments.positional.reserve(nodes.positional.size());
  for (const auto& value : nodes.positional) arguments.positional.push_back(evaluate(value, scope));
  for (const auto& [name, value] : nodes.named)
    arguments.named.emplace_back(name, evaluate(value, scope));
  if (nodes.splat) {
    for (Value& value : iterate(evaluate(nodes.splat, scope), budget_))
      arguments.positional.push_back(std::move(value));
  }
  if (nodes.double_splat) {
    const Value values = evaluate(nodes.double_splat, scope);
    const Dict* dict = values.if_dict();
    if (dict == nullptr)
      fail_type(fmt::format("argument after ** must be a mapping, not {}", values.type_name()));
    for (const auto& [name, value] : dict->members) {
      const std::string* text = name.if_string();
      if (text == nullptr) fail_type("keywords must be strings");
      arguments.named.emplace_back(*text, value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_node(const ast::Call& node, Scope& scope) {
  const Value callee = evaluate(node.callee, scope);
  Arguments arguments = evaluate(node.arguments, scope);
  return call(callee, std::move(arguments));
}

Value Interpreter::evaluate_node(const ast::Filter& node, Scope& scope) {
  const Value input = evaluate(node.input, scope);
  Arguments arguments = evaluate(node.arguments, scope);
  return filter(node.name, input, std::move(arguments));
}

Value Interpreter::evaluate_node(const ast::Test& node, Scope& scope) {
  const Value input = evaluate(node.input, scope);
  Arguments arguments = evaluate(node.arguments, scope);
  return test(node.name, input, std::move(arguments));
}

Value Interpreter::evaluate_node(const ast::BlockText&, Scope&) { return block_text_; }

Value Interpreter::evaluate_node(const ast::Unary& node, Scope& scope) {
  const Value value = evaluate(node.operand, scope);
  switch (node.op) {
    case ast::UnaryOperator::kNot:
      return !value.truthy();
    case ast::UnaryOperator::kNegative:
      return negated(value);
    case ast::UnaryOperator::kPositive:
      return posited(value);
  }
  return value;
}

Value Interpreter::evaluate_node(const ast::Binary& node, Scope& scope) {
  const Value left = evaluate(node.left, scope);
  const Value right = evaluate(node.right, scope);
  return apply(node.op, left, right, budget_);
}

Value Interpreter::evaluate_node(const ast::Logical& node, Scope& scope) {
  Value left = evaluate(node.left, scope);
  return left.truthy() == node.is_and ? evaluate(node.right, scope) : std::move(left);
}

Value Interpreter::evaluate_node(const ast::Concat& node, Scope& scope) {
  std::string out;
  for (const auto& part : node.parts) {
    const Value value = evaluate(part, scope);
    budget_.take_bytes(out.size() + static_cast<std::size_t>(value.extent().size));
    out += to_str(value);
  }
  return out;
}

Value Interpreter::evaluate_node(const ast::Compare& node, Scope& scope) {
  Value left = evaluate(node.first, scope);
  for (const auto& [op, part] : node.rest) {
    Value right = evaluate(part, scope);
    if (!compare(op, left, right, budget_)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_node(const ast::Conditional& node, Scope& scope) {
  if (evaluate(node.condition, scope).truthy()) return evaluate(node.then, scope);
  if (node.otherwise) return evaluate(node.otherwise, scope);
  return make_undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      line_));
}

}  // namespace slime::text::jinja
