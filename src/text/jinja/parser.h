#pragma once

/// Parser of a template, tokens to a tree. The grammar is Jinja2's with its loopcontrols extension and transformers' {%
/// generation %}; template inheritance and imports (extends, block, include, import) are refused: a
/// chat template is one file.

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace slime::text::jinja {

struct ParsedTemplate {
  ast::Body body;
  std::set<std::string, std::less<>> names;  // that its expressions look up
};

/// Throws SyntaxError. Nesting is bounded, so any text is safe to parse.
ParsedTemplate parse_template(std::string_view source);

}  // namespace slime::text::jinja
