#pragma once

/// A parsed template: a tree of statements and expressions, one plain struct per form. Built once,
/// read by any number of renderings at a time.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace slime::text::jinja::ast {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;  // null where an optional part is absent

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr splat;         // *values
  ExpressionPtr double_splat;  // **values
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members;
};
struct Attribute {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct Subscript {  // object[key]
  ExpressionPtr object;
  ExpressionPtr key;
};
struct Slice {  // object[start:stop:step]
  ExpressionPtr object;
  ExpressionPtr start, stop, step;
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct Filter {  // input | name(arguments)
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};
struct Test {  // input is name(arguments)
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};
struct BlockText {};  // what the body of {% filter %} or {% set x | f %} gave
enum class UnaryOperator { kNot, kNegative, kPositive };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Logical {  // and, or: gives one of its operands
  bool is_and;
  ExpressionPtr left, right;
};
struct Concat {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
struct Compare {  // a < b <= c
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
};
struct Conditional {  // then if condition else otherwise
  ExpressionPtr condition, then, otherwise;
};

struct Expression {
  int line = 0;
  int depth = 1;  // of the tree below, itself included
  std::variant<Constant, Name, ListLiteral, DictLiteral, Attribute, Subscript, Slice, Call, Filter,
               Test, BlockText, Unary, Binary, Logical, Concat, Compare, Conditional>
      node;
};

/// The node with its depth. Throws SyntaxError when the tree is deeper than what may recurse over
/// it (300).
ExpressionPtr make_expression(int line, decltype(Expression::node) node);

struct Statement;
using Body = std::vector<Statement>;

/// What an assignment or a loop fills.
struct Target {
  std::string name;           // the variable, or the namespace of `attribute`
  std::string attribute;      // of {% set ns.attribute = ... %}
  std::vector<Target> parts;  // of {% for key, value in ... %}; then the others are empty
};

struct Parameter {
  std::string name;
  ExpressionPtr default_value;
};

/// The parameters and body of a macro or a call block.
struct Callable {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  // Which of the special names the body mentions: only then they may be given.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Text {
  Value text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable, filter;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filters;  // around a BlockText
  Body body;
};
struct FilterBlock {
  ExpressionPtr filters;
  Body body;
};
struct Macro {
  Callable callable;
};
struct CallBlock {
  Callable caller;
  ExpressionPtr call;
};
struct With {  // also {% generation %}, with no assignments
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
  bool is_generation = false;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 0;
  std::variant<Text, Output, If, For, Set, SetBlock, FilterBlock, Macro, CallBlock, With, Break,
               Continue>
      node;
};

}  // namespace slime::text::jinja::ast
