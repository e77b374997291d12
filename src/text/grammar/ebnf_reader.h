#pragma once

/// Reader of grammars in EBNF: looks for what the engine would take for something else, or would never end.
///
///   # a comment
///   root ::= "(" root ")" | [a-z]+ ("," item{1,3})?
///   item ::= "x" | "\u00e9"

#include <string>
#include <string_view>

#include "text/grammar/grammar_limits.h"

namespace slime::text {

/// The engine takes the rule that a text begins with for one that nothing mentions: no token would close it
/// twice. So a rule of its own stands in front of `root`, behind the source.
inline constexpr std::string_view kEbnfWholeName = "slime.whole";
inline constexpr std::string_view kEbnfWhole = "\nslime.whole ::= root\n";

/// Throws ConfigError that begins with `where` and names line and column when a rule is missing, twice there
/// or never ends, when the form is wrong, or when a limit is exceeded. Rules may be recursive on either
/// side.
void check_ebnf(std::string_view source, const std::string& where, const GrammarLimits& limits);

}  // namespace slime::text
