#pragma once

/// Tokens to a tree. The grammar is Jinja2's with its loopcontrols extension and transformers' {%
/// generation %}; template inheritance and imports (extends, block, include, import) are refused: a
/// chat template is one file.

#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace slime::text::jinja {

/// Throws SyntaxError. Nesting is bounded, so any text is safe to parse.
ast::Body parse_template(std::string_view source);

}  // namespace slime::text::jinja
