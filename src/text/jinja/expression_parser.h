#pragma once

/// The expression half of the parser.

#include <set>
#include <string>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace slime::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  /// One expression; with `conditional` also `a if b else c`.
  ast::ExpressionPtr parse(bool conditional = true);
  /// One expression, or several with commas: a tuple. What stands in {{ }}, after `set x =` and
  /// after `in`.
  ast::ExpressionPtr parse_tuple(bool conditional = true, bool in_parentheses = false);
  /// name(args) | name ...: the filters of a block, around a BlockText.
  ast::ExpressionPtr parse_block_filters(bool first_bar_is_read);
  /// f(args), as {% call %} needs it.
  ast::ExpressionPtr parse_call_expression();
  /// name, (a, b), ns.attribute: what {% set %} and {% for %} assign to.
  ast::Target parse_target(bool with_attribute);

  /// Every name read so far; a macro's body asks for its special ones.
  std::set<std::string, std::less<>>& mentioned() { return mentioned_; }

 private:
  ast::ExpressionPtr parse_or();
  ast::ExpressionPtr parse_and();
  ast::ExpressionPtr parse_not();
  ast::ExpressionPtr parse_compare();
  ast::ExpressionPtr parse_sum();
  ast::ExpressionPtr parse_concat();
  ast::ExpressionPtr parse_product();
  ast::ExpressionPtr parse_power();
  ast::ExpressionPtr parse_unary(bool with_filters);
  ast::ExpressionPtr parse_primary();
  ast::ExpressionPtr parse_postfix(ast::ExpressionPtr value);
  ast::ExpressionPtr parse_filters(ast::ExpressionPtr value);
  ast::ExpressionPtr parse_filter(ast::ExpressionPtr input);
  ast::ExpressionPtr parse_test(ast::ExpressionPtr input);
  ast::ExpressionPtr parse_subscript(ast::ExpressionPtr object);
  ast::ExpressionPtr parse_call(ast::ExpressionPtr callee);
  ast::CallArguments parse_arguments();
  bool at_tuple_end() const;

  TokenStream& stream_;
  std::set<std::string, std::less<>> mentioned_;
};

}  // namespace slime::text::jinja
