#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <initializer_list>

#include "text/jinja/expression_parser.h"
#include "text/jinja/token_stream.h"

namespace slime::text::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view source) : stream_(tokenize(source)), expressions_(stream_) {}

  ParsedTemplate parse() {
    ast::Body body = parse_body({});
    return {std::move(body), std::move(expressions_.mentioned())};
  }

 private:
  /// Up to a tag that starts with one of `ends`, whose name stays the current token; up to the end
  /// of the template where `ends` is empty.
  ast::Body parse_body(std::initializer_list<std::string_view> ends) {
    const TokenStream::Nesting nesting(stream_);
    ast::Body body;
    while (true) {
      const int line = stream_.line();
      switch (stream_.peek().kind) {
        case TokenKind::kText:
          body.push_back({line, ast::Text{std::move(stream_.next().text)}});
          break;
        case TokenKind::kOpenOutput: {
          stream_.next();
          body.push_back({line, ast::Output{expressions_.parse_tuple()}});
          stream_.expect(TokenKind::kCloseOutput, "}}");
          break;
        }
        case TokenKind::kOpenTag:
          stream_.next();
          for (const std::string_view end : ends) {
            if (stream_.is_name(end)) return body;
          }
          body.push_back(parse_statement(line));
          stream_.expect(TokenKind::kCloseTag, "%}");
          break;
        default:
          if (ends.size() == 0) return body;
          stream_.fail(
              fmt::format("{{% {} %}} expected, not {}", *(ends.end() - 1), stream_.description()));
      }
    }
  }

  void close_tag() { stream_.expect(TokenKind::kCloseTag, "%}"); }

  /// The body of a block with one end; its end tag is read up to the closing %}.
  ast::Body parse_block(std::string_view end) {
    close_tag();
    ast::Body body = parse_body({end});
    stream_.next();
    return body;
  }

  ast::Statement parse_statement(int line) {
    const std::string tag = stream_.expect_name();
    if (tag == "if") return {line, parse_if()};
    if (tag == "for") return {line, parse_for()};
    if (tag == "set") return parse_set(line);
    if (tag == "macro") return {line, parse_macro()};
    if (tag == "call") return {line, parse_call_block()};
    if (tag == "filter") return {line, parse_filter_block()};
    if (tag == "with") return {line, parse_with()};
    if (tag == "generation") return {line, ast::With{{}, parse_block("endgeneration"), true}};
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) stream_.fail(fmt::format("{{% {} %}} outside of a loop", tag));
      if (tag == "break") return {line, ast::Break{}};
      return {line, ast::Continue{}};
    }
    for (const std::string_view refused : {"extends", "block", "include", "import", "from"}) {
      if (tag == refused)
        stream_.fail(fmt::format("{{% {} %}}: a chat template is one file, without imports", tag));
    }
    stream_.fail(fmt::format("{{% {} %}} is not a tag of chat templates", tag));
  }

  ast::If parse_if() {
    ast::If node;
    while (true) {
      ast::ExpressionPtr condition = expressions_.parse_tuple(false);
      close_tag();
      node.branches.emplace_back(std::move(condition), parse_body({"elif", "else", "endif"}));
      const std::string tag = stream_.next().text;
      if (tag == "elif") continue;
      if (tag == "else") node.otherwise = parse_block("endif");
      return node;
    }
  }

  ast::For parse_for() {
    ast::For node;
    node.target = expressions_.parse_target(false);
    if (!stream_.skip_name("in")) stream_.fail("'in' expected, not " + stream_.description());
    node.iterable = expressions_.parse_tuple(false);
    if (stream_.skip_name("if")) node.filter = expressions_.parse();
    if (stream_.is_name("recursive"))
      stream_.fail("recursive loops are not supported; a macro can call itself");
    close_tag();
    ++loops_;
    node.body = parse_body({"endfor", "else"});
    --loops_;
    if (stream_.next().text == "else") node.otherwise = parse_block("endfor");
    return node;
  }

  ast::Statement parse_set(int line) {
    ast::Target target = expressions_.parse_target(true);
    if (stream_.skip_operator("="))
      return {line, ast::Set{std::move(target), expressions_.parse_tuple()}};
    ast::ExpressionPtr filters = expressions_.parse_block_filters(false);
    return {line, ast::SetBlock{std::move(target), std::move(filters), parse_block("endset")}};
  }

  std::vector<ast::Parameter> parse_parameters() {
    std::vector<ast::Parameter> parameters;
    stream_.expect_operator("(");
    while (!stream_.is_operator(")")) {
      ast::Parameter parameter;
      parameter.name = stream_.expect_name();
      if (stream_.skip_operator("=")) {
        parameter.default_value = expressions_.parse();
      } else if (!parameters.empty() && parameters.back().default_value) {
        stream_.fail("a parameter without default after one with a default");
      }
      parameters.push_back(std::move(parameter));
      if (!stream_.skip_operator(",")) break;
    }
    stream_.expect_operator(")");
    return parameters;
  }

  /// The body of a macro or call block; notes which special names it mentions.
  void parse_callable_body(ast::Callable& callable, std::string_view end) {
    auto outer_names = std::exchange(expressions_.mentioned(), {});
    const int outer_loops = std::exchange(loops_, 0);
    callable.body = parse_block(end);
    loops_ = outer_loops;
    auto& names = expressions_.mentioned();
    callable.uses_caller = names.contains("caller");
    callable.uses_varargs = names.contains("varargs");
    callable.uses_kwargs = names.contains("kwargs");
    names.merge(outer_names);
  }

  ast::Macro parse_macro() {
    ast::Macro node;
    node.callable.name = stream_.expect_name();
    node.callable.parameters = parse_parameters();
    parse_callable_body(node.callable, "endmacro");
    if (stream_.is(TokenKind::kName)) stream_.next();  // {% endmacro name %}
    return node;
  }

  ast::CallBlock parse_call_block() {
    ast::CallBlock node;
    node.caller.name = "caller";
    if (stream_.is_operator("(")) node.caller.parameters = parse_parameters();
    node.call = expressions_.parse_call_expression();
    parse_callable_body(node.caller, "endcall");
    return node;
  }

  ast::FilterBlock parse_filter_block() {
    ast::ExpressionPtr filters = expressions_.parse_block_filters(true);
    return {std::move(filters), parse_block("endfilter")};
  }

  ast::With parse_with() {
    ast::With node;
    while (!stream_.is(TokenKind::kCloseTag)) {
      ast::Target target = expressions_.parse_target(false);
      stream_.expect_operator("=");
      node.assignments.emplace_back(std::move(target), expressions_.parse());
      if (!stream_.skip_operator(",")) break;
    }
    node.body = parse_block("endwith");
    return node;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

ParsedTemplate parse_template(std::string_view source) { return Parser(source).parse(); }

}  // namespace slime::text::jinja
