#pragma once

/// Grammar of one call's arguments, in the form that a format writes them.
///
/// JSON is bound by the tool's schema. In the other forms parameters come in the schema's order, the
/// required ones at least; values that are not text are bound by their schemas, and text by `enum`, `const`
/// and `pattern`.

#include "core/json.h"
#include "text/messages/call_syntax.h"

namespace slime::text {

/// A format of structural tags. `function`: {"name", "parameters"}. Where arguments are not bound by the
/// schema, they are any of the form.
json::object argument_grammar(const CallSyntax& syntax, const json::object& function,
                              bool is_bound);

}  // namespace slime::text
