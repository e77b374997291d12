#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <initializer_list>

namespace slime::text::jinja {

using ast::ExpressionPtr;
using ast::make_expression;

ExpressionPtr ExpressionParser::parse(bool conditional) {
  const TokenStream::Nesting nesting(stream_);
  ExpressionPtr value = parse_or();
  while (conditional && stream_.is_name("if")) {
    const int line = stream_.next().line;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = stream_.skip_name("else") ? parse() : nullptr;
    value = make_expression(
        line, ast::Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

bool ExpressionParser::at_tuple_end() const {
  return stream_.is(TokenKind::kCloseOutput) || stream_.is(TokenKind::kCloseTag) ||
         stream_.is_operator(")") || stream_.is_name("in") || stream_.is_name("recursive");
}

ExpressionPtr ExpressionParser::parse_tuple(bool conditional, bool in_parentheses) {
  const int line = stream_.line();
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!at_tuple_end()) {
    items.push_back(parse(conditional));
    if (!stream_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items.front());
  if (items.empty() && !in_parentheses)
    stream_.fail("an expression expected, not " + stream_.description());
  return make_expression(line, ast::ListLiteral{std::move(items), true});
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (stream_.is_name("or")) {
    const int line = stream_.next().line;
    ExpressionPtr right = parse_and();
    left = make_expression(line, ast::Logical{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (stream_.is_name("and")) {
    const int line = stream_.next().line;
    ExpressionPtr right = parse_not();
    left = make_expression(line, ast::Logical{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!stream_.is_name("not")) return parse_compare();
  const TokenStream::Nesting nesting(stream_);
  const int line = stream_.next().line;
  return make_expression(line, ast::Unary{ast::UnaryOperator::kNot, parse_not()});
}

ExpressionPtr ExpressionParser::parse_compare() {
  const int line = stream_.line();
  ExpressionPtr first = parse_sum();
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
  static constexpr std::pair<std::string_view, CompareOperator> kSymbols[] = {
      {"==", CompareOperator::kEqual},  {"!=", CompareOperator::kNotEqual},
      {"<", CompareOperator::kLess},    {"<=", CompareOperator::kLessEqual},
      {">", CompareOperator::kGreater}, {">=", CompareOperator::kGreaterEqual},
  };
  while (true) {
    std::optional<CompareOperator> op;
    for (const auto& [symbol, candidate] : kSymbols) {
      if (stream_.skip_operator(symbol)) op = candidate;
    }
    if (!op && stream_.skip_name("in")) op = CompareOperator::kIn;
    if (!op && stream_.is_name("not") && stream_.is_name("in", 1)) {
      stream_.next();
      stream_.next();
      op = CompareOperator::kNotIn;
    }
    if (!op) break;
    rest.emplace_back(*op, parse_sum());
  }
  if (rest.empty()) return first;
  return make_expression(line, ast::Compare{std::move(first), std::move(rest)});
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (stream_.is_operator("+") || stream_.is_operator("-")) {
    const Token token = stream_.next();
    ExpressionPtr right = parse_concat();
    const BinaryOperator op = token.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    left = make_expression(token.line, ast::Binary{op, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = stream_.line();
  std::vector<ExpressionPtr> parts;
  parts.push_back(parse_product());
  while (stream_.skip_operator("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts.front());
  return make_expression(line, ast::Concat{std::move(parts)});
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOperator> kSymbols[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo},
  };
  ExpressionPtr left = parse_power();
  while (true) {
    const int line = stream_.line();
    std::optional<BinaryOperator> op;
    for (const auto& [symbol, candidate] : kSymbols) {
      if (!op && stream_.skip_operator(symbol)) op = candidate;
    }
    if (!op) return left;
    ExpressionPtr right = parse_power();
    left = make_expression(line, ast::Binary{*op, std::move(left), std::move(right)});
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (stream_.is_operator("**")) {
    const int line = stream_.next().line;
    ExpressionPtr right = parse_unary(true);
    left = make_expression(line,
                           ast::Binary{BinaryOperator::kPower, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr value;
  if (stream_.is_operator("-") || stream_.is_operator("+")) {
    const TokenStream::Nesting nesting(stream_);
    const Token sign = stream_.next();
    const auto op =
        sign.text == "-" ? ast::UnaryOperator::kNegative : ast::UnaryOperator::kPositive;
    value = make_expression(sign.line, ast::Unary{op, parse_unary(false)});
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const int line = stream_.line();
  switch (stream_.peek().kind) {
    case TokenKind::kName: {
      std::string name = stream_.next().text;
      if (name == "true" || name == "True") return make_expression(line, ast::Constant{true});
      if (name == "false" || name == "False") return make_expression(line, ast::Constant{false});
      if (name == "none" || name == "None") return make_expression(line, ast::Constant{None{}});
      mentioned_.insert(name);
      return make_expression(line, ast::Name{std::move(name)});
    }
    case TokenKind::kString: {
      std::string text = stream_.next().text;
      while (stream_.is(TokenKind::kString)) text += stream_.next().text;
      return make_expression(line, ast::Constant{std::move(text)});
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return make_expression(line, ast::Constant{stream_.next().number});
    default:
      break;
  }
  if (stream_.skip_operator("(")) {
    ExpressionPtr value = parse_tuple(true, true);
    stream_.expect_operator(")");
    return value;
  }
  if (stream_.skip_operator("[")) {
    std::vector<ExpressionPtr> items;
    while (!stream_.is_operator("]")) {
      items.push_back(parse());
      if (!stream_.skip_operator(",")) break;
    }
    stream_.expect_operator("]");
    return make_expression(line, ast::ListLiteral{std::move(items), false});
  }
  if (stream_.skip_operator("{")) {
    std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members;
    while (!stream_.is_operator("}")) {
      ExpressionPtr key = parse();
      stream_.expect_operator(":");
      members.emplace_back(std::move(key), parse());
      if (!stream_.skip_operator(",")) break;
    }
    stream_.expect_operator("}");
    return make_expression(line, ast::DictLiteral{std::move(members)});
  }
  stream_.fail("an expression expected, not " + stream_.description());
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  while (true) {
    if (stream_.is_operator(".") || stream_.is_operator("[")) {
      value = parse_subscript(std::move(value));
    } else if (stream_.is_operator("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value) {
  while (true) {
    if (stream_.skip_operator("|")) {
      value = parse_filter(std::move(value));
    } else if (stream_.is_name("is")) {
      value = parse_test(std::move(value));
    } else if (stream_.is_operator("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  const int line = stream_.line();
  std::string name = stream_.expect_name();
  ast::CallArguments arguments;
  if (stream_.is_operator("(")) arguments = parse_arguments();
  return make_expression(line,
                         ast::Filter{std::move(input), std::move(name), std::move(arguments)});
}

ExpressionPtr ExpressionParser::parse_block_filters(bool first_bar_is_read) {
  ExpressionPtr value = make_expression(stream_.line(), ast::BlockText{});
  while (first_bar_is_read || stream_.skip_operator("|")) {
    first_bar_is_read = false;
    value = parse_filter(std::move(value));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = stream_.next().line;
  const bool is_negated = stream_.skip_name("not");
  std::string name = stream_.expect_name();
  ast::CallArguments arguments;
  const TokenKind kind = stream_.peek().kind;
  const bool opens = stream_.is_operator("[") || stream_.is_operator("{");
  const bool ends = stream_.is_name("else") || stream_.is_name("or") || stream_.is_name("and");
  if (stream_.is_operator("(")) {
    arguments = parse_arguments();
  } else if (!ends && (opens || kind == TokenKind::kName || kind == TokenKind::kString ||
                       kind == TokenKind::kInteger || kind == TokenKind::kFloat)) {
    // `x is divisibleby 3`: one argument without brackets. So `x is a if y` has none to give.
    if (stream_.is_name("is")) stream_.fail("tests cannot be chained with is");
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExpressionPtr test =
      make_expression(line, ast::Test{std::move(input), std::move(name), std::move(arguments)});
  return is_negated ? make_expression(line, ast::Unary{ast::UnaryOperator::kNot, std::move(test)})
                    : std::move(test);
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = stream_.line();
  if (stream_.skip_operator(".")) {
    if (stream_.is(TokenKind::kInteger)) {
      return make_expression(
          line, ast::Subscript{std::move(object),
                               make_expression(line, ast::Constant{stream_.next().number})});
    }
    std::string name = stream_.expect_name();
    return make_expression(line, ast::Attribute{std::move(object), std::move(name)});
  }
  stream_.expect_operator("[");
  std::vector<ExpressionPtr> keys;
  bool is_slice = false;
  ExpressionPtr bounds[3];
  while (!stream_.is_operator("]")) {
    ExpressionPtr key = stream_.is_operator(":") ? nullptr : parse();
    if (stream_.is_operator(":")) {
      is_slice = true;
      bounds[0] = std::move(key);
      for (int i = 1; i < 3 && stream_.skip_operator(":"); ++i) {
        if (!stream_.is_operator(":") && !stream_.is_operator("]") && !stream_.is_operator(","))
          bounds[i] = parse();
      }
    } else {
      keys.push_back(std::move(key));
    }
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator("]");
  if (is_slice) {
    if (!keys.empty()) stream_.fail("a slice beside other indices");
    return make_expression(line, ast::Slice{std::move(object), std::move(bounds[0]),
                                            std::move(bounds[1]), std::move(bounds[2])});
  }
  if (keys.size() == 1)
    return make_expression(line, ast::Subscript{std::move(object), std::move(keys.front())});
  ExpressionPtr key = make_expression(line, ast::ListLiteral{std::move(keys), true});
  return make_expression(line, ast::Subscript{std::move(object), std::move(key)});
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  const int line = stream_.line();
  ast::CallArguments arguments = parse_arguments();
  return make_expression(line, ast::Call{std::move(callee), std::move(arguments)});
}

ExpressionPtr ExpressionParser::parse_call_expression() {
  ExpressionPtr call = parse();
  if (!std::holds_alternative<ast::Call>(call->node)) stream_.fail("a call expected");
  return call;
}

ast::CallArguments ExpressionParser::parse_arguments() {
  ast::CallArguments arguments;
  const auto ensure = [&](bool in_order) {
    if (!in_order)
      stream_.fail(
          "positional arguments come before named ones, and those before *values and **values");
  };
  stream_.expect_operator("(");
  while (!stream_.is_operator(")")) {
    if (stream_.skip_operator("*")) {
      ensure(!arguments.splat && !arguments.double_splat);
      arguments.splat = parse();
    } else if (stream_.skip_operator("**")) {
      ensure(!arguments.double_splat);
      arguments.double_splat = parse();
    } else if (stream_.is(TokenKind::kName) && stream_.is_operator("=", 1)) {
      ensure(!arguments.double_splat);
      std::string name = stream_.next().text;
      stream_.next();
      arguments.named.emplace_back(std::move(name), parse());
    } else {
      ensure(!arguments.splat && !arguments.double_splat && arguments.named.empty());
      arguments.positional.push_back(parse());
    }
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator(")");
  return arguments;
}

ast::Target ExpressionParser::parse_target(bool with_attribute) {
  const TokenStream::Nesting nesting(stream_);
  std::vector<ast::Target> parts;
  bool is_tuple = false;
  do {
    if (is_tuple && (stream_.is_operator("=") || stream_.is_name("in") || stream_.is_operator(")")))
      break;
    if (stream_.skip_operator("(")) {
      parts.push_back(parse_target(with_attribute));
      stream_.expect_operator(")");
    } else {
      ast::Target target;
      target.name = stream_.expect_name();
      for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
        if (target.name == constant) stream_.fail(fmt::format("cannot assign to '{}'", constant));
      }
      if (with_attribute && stream_.skip_operator(".")) target.attribute = stream_.expect_name();
      parts.push_back(std::move(target));
    }
    if (!stream_.is_operator(",")) break;
    is_tuple = true;
  } while (stream_.skip_operator(","));
  if (!is_tuple) return std::move(parts.front());
  ast::Target tuple;
  tuple.parts = std::move(parts);
  return tuple;
}

}  // namespace slime::text::jinja
