#pragma once

/// The small language in which the math rewards compare answers: numbers, + - * / ^, parentheses,
/// factorials, sqrt, ln, pi and one-letter symbols (spec appendix A.2).
///
///   sum     = product { ("+" | "-") product }
///   product = signed { ["*" | "/"] signed }          adjacency multiplies: 1/2x is (1/2)x
///   signed  = { "+" | "-" } power                    so -x^2 is -(x^2)
///   power   = postfix [ ("^" | "**") { "+" | "-" } power ]
///   postfix = primary [ "!" ]
///   primary = number | symbol | "pi" | "(" sum ")" | ("sqrt" | "ln") ( "(" sum ")" | power )

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slime::reward {

/// One operation on a stack of values.
struct ExpressionStep {
  enum class Kind {
    kInteger,  // pushes text
    kDecimal,  // pushes text, a number with a point or an exponent
    kSymbol,   // pushes the value of the symbol named text
    kPi,       // pushes pi
    kAdd,      // these pop two values and push one
    kSubtract,
    kMultiply,
    kDivide,
    kPower,
    kNegate,  // these pop one value and push one
    kFactorial,
    kSqrt,
    kLn,
  };
  Kind kind;
  std::string text;
};

/// In the order of evaluation: "x^2+1" is x 2 ^ 1 +. Evaluation is a loop.
using Expression = std::vector<ExpressionStep>;

/// Nothing when the text is not in the language, has a name that means something else to an algebra
/// system ("re", "im", "oo", ...), is longer than 2,000 characters, or nests deeper than 100.
std::optional<Expression> parse_expression(std::string_view text);

}  // namespace slime::reward
