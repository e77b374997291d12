#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/functions.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/print.h"
#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

const Value* Scope::find(std::string_view name, Budget& budget) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    budget.take_pass(scope->variables.size() * 8);
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  for (const auto& [key, value] : attributes_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(name, std::move(value));
}

/// A scope for as long as this lives, or until the end of the rendering when a macro captured it.
class Interpreter::ScopeOwner {
 public:
  ScopeOwner(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), scope_(std::make_unique<Scope>()) {
    interpreter.budget_.take_bytes(sizeof(Scope) + 4 * sizeof(scope_->variables[0]));
    scope_->parent = parent;
  }
  ~ScopeOwner() {
    if (scope_->captured) interpreter_.kept_scopes_.push_back(std::move(scope_));
  }
  ScopeOwner(const ScopeOwner&) = delete;
  ScopeOwner& operator=(const ScopeOwner&) = delete;
  Scope& get() { return *scope_; }

 private:
  Interpreter& interpreter_;
  std::unique_ptr<Scope> scope_;
};

/// What is written while this lives goes into a text of its own.
class Interpreter::OutputCapture {
 public:
  explicit OutputCapture(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.out_, &text_)) {}
  ~OutputCapture() { interpreter_.out_ = outer_; }
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;
  std::string take() { return std::move(text_); }

 private:
  Interpreter& interpreter_;
  std::string text_;
  std::string* outer_;
};

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) space->clear();
}

std::string Interpreter::run(const ast::Body& body,
                             std::vector<std::pair<std::string_view, Value>> variables) {
  OutputCapture capture(*this);
  text_ = out_;
  // Three scopes, as in Jinja: built-in functions, what the caller gave, what the template sets.
  ScopeOwner globals(*this, nullptr);
  globals.get().variables = global_functions();
  ScopeOwner context(*this, &globals.get());
  context.get().variables = std::move(variables);
  ScopeOwner top(*this, &context.get());
  execute(body, top.get());
  return capture.take();
}

void Interpreter::write(std::string_view text) {
  budget_.take_bytes(text.size());
  if (out_->size() + text.size() > static_cast<std::size_t>(budget_.limits().output_bytes)) {
    fail_limit(
        fmt::format("the rendered text is longer than {} bytes", budget_.limits().output_bytes));
  }
  if (is_traced()) tracer_.wrote(out_->size(), text.size());
  *out_ += text;
}

/// One overload per statement form.
struct StatementVisitor {
  using Flow = Interpreter::Flow;
  Interpreter& run;
  Scope& scope;

  Flow operator()(const ast::Text& node) const {
    run.write(*node.text.if_string());
    return Flow::kNext;
  }
  Flow operator()(const ast::Output& node) const {
    const Value value = run.evaluate(node.value, scope);
    if (const std::string* text = value.if_string()) {
      run.write(*text);
    } else {
      run.budget_.take_steps(static_cast<std::size_t>(value.extent().size));
      run.write(to_str(value));
    }
    return Flow::kNext;
  }
  Flow operator()(const ast::If& node) const { return run.execute(node, scope); }
  Flow operator()(const ast::For& node) const { return run.execute(node, scope); }
  Flow operator()(const ast::With& node) const { return run.execute(node, scope); }
  Flow operator()(const ast::Set& node) const {
    const Value value = run.evaluate(node.value, scope);
    run.assign(node.target, value, scope);
    if (node.target.attribute.empty()) run.tracer_.assigned(value);
    return Flow::kNext;
  }
  Flow operator()(const ast::SetBlock& node) const {
    run.execute(node, scope);
    return Flow::kNext;
  }
  Flow operator()(const ast::FilterBlock& node) const {
    run.execute(node, scope);
    return Flow::kNext;
  }
  Flow operator()(const ast::CallBlock& node) const {
    run.execute(node, scope);
    return Flow::kNext;
  }
  Flow operator()(const ast::Macro& node) const {
    scope.set(node.callable.name, run.make_macro(node.callable, scope));
    return Flow::kNext;
  }
  Flow operator()(const ast::Break&) const { return Flow::kBreak; }
  Flow operator()(const ast::Continue&) const { return Flow::kContinue; }
};

Interpreter::Flow Interpreter::execute(const ast::Body& body, Scope& scope) {
  const DepthGuard guard(depth_, budget_.limits().depth);
  for (const ast::Statement& statement : body) {
    budget_.take_steps();
    line_ = statement.line;
    const Flow flow = std::visit(StatementVisitor{*this, scope}, statement.node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const ast::If& node, Scope& scope) {
  for (const auto& [condition, body] : node.branches) {
    if (evaluate(condition, scope).truthy()) return execute(body, scope);
  }
  return execute(node.otherwise, scope);
}

Interpreter::Flow Interpreter::execute(const ast::For& node, Scope& scope) {
  std::vector<Value> items = iterate(evaluate(node.iterable, scope), budget_);
  if (node.filter) {
    std::vector<Value> kept;
    for (Value& item : items) {
      ScopeOwner inner(*this, &scope);
      assign(node.target, item, inner.get());
      if (evaluate(node.filter, inner.get()).truthy()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return execute(node.otherwise, scope);

  const auto loop = std::make_shared<Loop>(std::move(items));
  const std::shared_ptr<void> closer(nullptr, [&](void*) { loop->close(); });
  for (; !loop->is_done(); loop->advance()) {
    budget_.take_steps();
    const Tracer::Turn turn(tracer_, loop->item());
    ScopeOwner inner(*this, &scope);
    inner.get().variables.reserve(4);
    inner.get().set("loop", std::shared_ptr<Object>(loop));
    assign(node.target, loop->item(), inner.get());
    if (execute(node.body, inner.get()) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const ast::With& node, Scope& scope) {
  ScopeOwner inner(*this, &scope);
  // All values are computed outside, before any name is set.
  std::vector<Value> values;
  for (const auto& assignment : node.assignments)
    values.push_back(evaluate(assignment.second, scope));
  for (std::size_t i = 0; i < values.size(); ++i)
    assign(node.assignments[i].first, values[i], inner.get());
  if (!node.is_generation || !is_traced()) return execute(node.body, inner.get());
  const std::size_t begin = out_->size();
  const Flow flow = execute(node.body, inner.get());
  tracer_.generated(begin, out_->size());
  return flow;
}

void Interpreter::execute(const ast::SetBlock& node, Scope& scope) {
  Value text;
  {
    OutputCapture capture(*this);
    ScopeOwner inner(*this, &scope);
    execute(node.body, inner.get());
    text = capture.take();
  }
  std::swap(block_text_, text);
  const Value value = evaluate(node.filters, scope);
  std::swap(block_text_, text);
  assign(node.target, value, scope);
}

void Interpreter::execute(const ast::FilterBlock& node, Scope& scope) {
  Value text;
  {
    OutputCapture capture(*this);
    ScopeOwner inner(*this, &scope);
    execute(node.body, inner.get());
    text = capture.take();
  }
  std::swap(block_text_, text);
  const Value value = evaluate(node.filters, scope);
  std::swap(block_text_, text);
  budget_.take_bytes(static_cast<std::size_t>(value.extent().size));
  write(to_str(value));
}

void Interpreter::execute(const ast::CallBlock& node, Scope& scope) {
  const auto& call_node = std::get<ast::Call>(node.call->node);
  const Value callee = evaluate(call_node.callee, scope);
  Arguments arguments = evaluate(call_node.arguments, scope);
  arguments.named.emplace_back("caller", make_macro(node.caller, scope));
  write(to_str(call(callee, std::move(arguments))));
}

void Interpreter::assign(const ast::Target& target, const Value& value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value* space = scope.find(target.name, budget_);
    auto* object = space == nullptr ? nullptr : dynamic_cast<Namespace*>(space->if_object());
    if (object == nullptr) fail_type("cannot assign attribute on non-namespace object");
    object->set(target.attribute, value);
    return;
  }
  if (target.parts.empty()) {
    scope.set(target.name, value);
    return;
  }
  if (value.is_undefined()) fail_type("not enough values to unpack (undefined value)");
  const std::vector<Value> items = iterate(value, budget_);
  if (items.size() != target.parts.size()) {
    fail_type(fmt::format("{} values to unpack (expected {}, got {})",
                          items.size() < target.parts.size() ? "not enough" : "too many",
                          target.parts.size(), items.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
}

Value Interpreter::make_macro(const ast::Callable& callable, Scope& scope) {
  for (Scope* outer = &scope; outer != nullptr; outer = outer->parent) outer->captured = true;
  auto function = std::make_shared<Function>();
  function->repr = fmt::format("<Macro {}>", repr_of_text(callable.name));
  // Both live until the end of the rendering: the tree is the template's, the scope is kept.
  function->call = [&callable, &scope](Interpreter& run, Arguments arguments) {
    return run.call_macro(callable, scope, std::move(arguments));
  };
  return std::shared_ptr<const Function>(std::move(function));
}

Value Interpreter::call_macro(const ast::Callable& callable, Scope& definition,
                              Arguments arguments) {
  ScopeOwner inner(*this, &definition);
  Scope& scope = inner.get();
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& n) { return n.first == name; });
    if (found == arguments.named.end()) return std::nullopt;
    Value value = std::move(found->second);
    arguments.named.erase(found);
    return value;
  };

  bool caller_is_parameter = false;
  const std::size_t num_positional =
      std::min(arguments.positional.size(), callable.parameters.size());
  for (std::size_t i = 0; i < callable.parameters.size(); ++i) {
    const ast::Parameter& parameter = callable.parameters[i];
    caller_is_parameter |= parameter.name == "caller";
    std::optional<Value> value;
    if (i < num_positional) {
      value = std::move(arguments.positional[i]);
    } else {
      value = take_named(parameter.name);
    }
    if (!value && parameter.default_value) value = evaluate(parameter.default_value, scope);
    if (!value)
      value = make_undefined(
          fmt::format("parameter {} was not provided", repr_of_text(parameter.name)));
    scope.set(parameter.name, *std::move(value));
  }
  if (callable.uses_caller && !caller_is_parameter) {
    auto caller = take_named("caller");
    scope.set("caller", caller ? *std::move(caller) : make_undefined("No caller defined"));
  }
  if (callable.uses_kwargs) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : arguments.named) rest.emplace_back(name, std::move(value));
    scope.set("kwargs", make_dict(std::move(rest)));
  } else if (!arguments.named.empty()) {
    fail_type(fmt::format("macro {} takes no keyword argument {}", repr_of_text(callable.name),
                          repr_of_text(arguments.named.front().first)));
  }
  if (callable.uses_varargs) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_positional);
    scope.set("varargs", make_tuple({rest, arguments.positional.end()}));
  } else if (arguments.positional.size() > num_positional) {
    fail_type(fmt::format("macro {} takes not more than {} argument(s)",
                          repr_of_text(callable.name), callable.parameters.size()));
  }

  OutputCapture capture(*this);
  execute(callable.body, scope);
  return capture.take();
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  const DepthGuard guard(depth_, budget_.limits().depth);
  budget_.take_steps();
  if (callee.is_undefined()) fail_undefined(callee.undefined_reason());
  const Function* function = callee.if_function();
  if (function == nullptr)
    fail_type(fmt::format("'{}' object is not callable", callee.type_name()));
  pay_look(arguments);
  return function->call(*this, std::move(arguments));
}

Value Interpreter::attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) fail_undefined(value.undefined_reason());
  if (auto method = find_method(value, name)) return *std::move(method);
  if (Object* object = value.if_object()) {
    if (auto found = object->attribute(name)) return *std::move(found);
  }
  if (const Dict* dict = value.if_dict()) {
    if (const Value* member = dict->find(name, budget_)) return *member;
  }
  return missing_attribute(value, name);
}

Value Interpreter::item(const Value& value, const Value& key) {
  if (value.is_undefined()) fail_undefined(value.undefined_reason());
  if (const Dict* dict = value.if_dict()) {
    const std::string* name = key.if_string();
    if (const Value* member = name != nullptr ? dict->find(std::string_view(*name), budget_)
                                              : dict->find(key, budget_))
      return *member;
  } else if (const auto integer = key.if_integer()) {
    const Sequence* sequence = value.if_indexable();
    const std::string* text = value.if_string();
    const int64_t size = static_cast<int64_t>(sequence != nullptr ? sequence->items.size()
                                              : text != nullptr   ? length(value, budget_)
                                                                  : 0);
    int64_t index = to_index(*integer);
    if (index < 0) index += size;
    if (index >= 0 && index < size) {
      if (sequence != nullptr) return sequence->items[static_cast<std::size_t>(index)];
      budget_.take_steps(text->size() / 64);
      std::size_t at = byte_offset(*text, static_cast<std::size_t>(index));
      const std::size_t start = at;
      next_point(*text, at);
      return std::string_view(*text).substr(start, at - start);
    }
  }
  if (const std::string* name = key.if_string()) {
    budget_.take_pass(name->size());
    if (auto method = find_method(value, *name)) return *std::move(method);
    if (Object* object = value.if_object()) {
      if (auto found = object->attribute(*name)) return *std::move(found);
    }
  }
  return missing_element(value, key);
}

void Interpreter::pay_look(const Value& value) {
  if (const std::string* text = value.if_string()) budget_.take_pass(2 * text->size());
}

void Interpreter::pay_look(const Arguments& arguments) {
  for (const Value& value : arguments.positional) pay_look(value);
  for (const auto& [name, value] : arguments.named) pay_look(value);
}

Value Interpreter::filter(std::string_view name, const Value& input, Arguments arguments) {
  const FilterFn function = find_filter(name);
  if (function == nullptr) fail_type(fmt::format("No filter named {}.", repr_of_text(name)));
  pay_look(input);
  pay_look(arguments);
  return function(*this, input, std::move(arguments));
}

bool Interpreter::test(std::string_view name, const Value& input, Arguments arguments) {
  const TestFn function = find_test(name);
  if (function == nullptr) fail_type(fmt::format("No test named {}.", repr_of_text(name)));
  pay_look(input);
  pay_look(arguments);
  return function(*this, input, std::move(arguments));
}

Value Interpreter::new_namespace(Arguments arguments) {
  const auto space = std::make_shared<Namespace>();
  if (arguments.positional.size() > 1) fail_type("namespace takes one dictionary and named values");
  for (const Value& given : arguments.positional) {
    const Dict* dict = given.if_dict();
    if (dict == nullptr) fail_type("namespace takes a dictionary or named values");
    for (const auto& [key, value] : dict->members) space->set(to_str(key), value);
  }
  for (auto& [name, value] : arguments.named) space->set(name, std::move(value));
  budget_.take_bytes(sizeof(Namespace));
  namespaces_.push_back(space);
  return std::shared_ptr<Object>(space);
}

}  // namespace slime::text::jinja
