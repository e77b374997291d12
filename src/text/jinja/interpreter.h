#pragma once

/// Interpreter of a parsed template. One Interpreter is one rendering: it owns the scopes, the output and
/// what is left of the limits, and is used by one thread.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/tracer.h"
#include "text/jinja/value.h"

namespace slime::text::jinja {

/// Variables of one block. A loop's body, a macro's body and a {% with %} have one of their own; {%
/// if %} has none.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;  // names live in the tree
  bool captured = false;  // a macro defined here, or further in, still refers to it

  const Value* find(std::string_view name, Budget& budget) const;
  void set(std::string_view name, Value value);
};

/// {{ namespace(a=1) }}: the one thing that a loop's body can change for the outside.
class Namespace final : public Object {
 public:
  std::optional<Value> attribute(std::string_view name) override;
  std::string_view type_name() const override { return "jinja2.utils.Namespace"; }
  std::string repr() const override { return "<Namespace>"; }
  void set(std::string_view name, Value value);
  void clear() { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

class Interpreter {
 public:
  /// `trace` may be null; it outlives the object.
  Interpreter(const Limits& limits, std::chrono::local_seconds now, Trace* trace = nullptr)
      : budget_(limits), now_(now), tracer_(trace) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Throws EvaluationError; then line() is where.
  std::string run(const ast::Body& body, std::vector<std::pair<std::string_view, Value>> variables);
  int line() const { return line_; }

  // For filters, tests, methods and functions.
  Budget& budget() { return budget_; }
  std::chrono::local_seconds now() const { return now_; }
  Value call(const Value& callee, Arguments arguments);
  /// value.name: methods come before keys of a dictionary.
  Value attribute(const Value& value, std::string_view name);
  /// value[key]: keys come before methods.
  Value item(const Value& value, const Value& key);
  /// What a built-in is given is paid for before it runs, whether or not it looks at all of it.
  void pay_look(const Value& value);
  void pay_look(const Arguments& arguments);
  Value filter(std::string_view name, const Value& input, Arguments arguments);
  bool test(std::string_view name, const Value& input, Arguments arguments);
  Value new_namespace(Arguments arguments);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class ScopeOwner;
  class OutputCapture;
  friend struct ExpressionVisitor;
  friend struct StatementVisitor;

  Flow execute(const ast::Body& body, Scope& scope);
  Flow execute(const ast::If& node, Scope& scope);
  Flow execute(const ast::For& node, Scope& scope);
  Flow execute(const ast::With& node, Scope& scope);
  void execute(const ast::CallBlock& node, Scope& scope);
  void execute(const ast::SetBlock& node, Scope& scope);
  void execute(const ast::FilterBlock& node, Scope& scope);
  void assign(const ast::Target& target, const Value& value, Scope& scope);
  void write(std::string_view text);
  /// Whether what is written now is part of the rendered text, and followed.
  bool is_traced() const { return tracer_.is_on() && out_ == text_; }

  Value evaluate(const ast::ExpressionPtr& expression, Scope& scope);
  Value evaluate_node(const ast::Constant& node, Scope& scope);
  Value evaluate_node(const ast::Name& node, Scope& scope);
  Value evaluate_node(const ast::ListLiteral& node, Scope& scope);
  Value evaluate_node(const ast::DictLiteral& node, Scope& scope);
  Value evaluate_node(const ast::Attribute& node, Scope& scope);
  Value evaluate_node(const ast::Subscript& node, Scope& scope);
  Value evaluate_node(const ast::Slice& node, Scope& scope);
  Value evaluate_node(const ast::Call& node, Scope& scope);
  Value evaluate_node(const ast::Filter& node, Scope& scope);
  Value evaluate_node(const ast::Test& node, Scope& scope);
  Value evaluate_node(const ast::BlockText& node, Scope& scope);
  Value evaluate_node(const ast::Unary& node, Scope& scope);
  Value evaluate_node(const ast::Binary& node, Scope& scope);
  Value evaluate_node(const ast::Logical& node, Scope& scope);
  Value evaluate_node(const ast::Concat& node, Scope& scope);
  Value evaluate_node(const ast::Compare& node, Scope& scope);
  Value evaluate_node(const ast::Conditional& node, Scope& scope);
  Arguments evaluate(const ast::CallArguments& arguments, Scope& scope);

  /// A macro, or the caller of a call block, with the scope it was defined in.
  Value make_macro(const ast::Callable& callable, Scope& scope);
  Value call_macro(const ast::Callable& callable, Scope& definition, Arguments arguments);

  Budget budget_;
  std::chrono::local_seconds now_;
  Tracer tracer_;
  int line_ = 0;
  int depth_ = 0;
  std::string* out_ = nullptr;
  const std::string* text_ = nullptr;  // the rendered text, where out_ is not a capture's
  Value block_text_;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;  // captured ones, until the end
  /// Emptied at the end: they may hold themselves.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace slime::text::jinja
