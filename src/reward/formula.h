#pragma once

/// A scalar formula of an answer, as a tree: "\frac{1}{2}+\sqrt{x}".

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace slime::reward {

struct Formula {
  enum class Kind {
    kNumber,    // text: digits, perhaps with a point: exactly that rational number
    kSymbol,    // text: its name, "x", "x_1", "\alpha"
    kPi,        // the constants
    kE,         //
    kI,         //
    kInfinity,  //
    kSum,       // of all args
    kProduct,   // of all args
    kNegative,  // -args[0]
    kInverse,   // 1 / args[0]
    kPower,     // args[0] ^ args[1]
    kRoot,      // the args[1]-th root of args[0]
    kFunction,  // text: its name, of args
    kSeries,    // text "sum", "prod" or "int": args = variable, from, to, body; text "lim":
                // args = variable, point, side (0, 1 from above, 2 from below), body
    kEither,    // text "+" or "-": args[0] with both signs, this one first: \pm and \mp
  };
  Kind kind = Kind::kNumber;
  std::string text;
  std::vector<Formula> args = {};
};

using FormulaKind = Formula::Kind;

Formula number_formula(std::string text);
Formula symbol_formula(std::string name);
Formula unary(Formula::Kind kind, Formula of);
Formula binary(Formula::Kind kind, Formula a, Formula b);
Formula function_of(std::string name, std::vector<Formula> args);
Formula difference_of(Formula a, Formula b);
Formula quotient_of(Formula a, Formula b);

/// The tree as text: equal texts, equal trees.
std::string shape_of(const Formula& formula);
/// Number of nodes.
std::size_t size_of(const Formula& formula);
/// The names of its symbols, each once, in order of the alphabet. Variables of a series are none.
std::vector<std::string> symbols_of(const Formula& formula);
/// Whether a node satisfies `holds`.
bool any_node(const Formula& formula, bool (*holds)(const Formula& node));
/// With `name` replaced by `value`.
Formula substituted(const Formula& formula, std::string_view name, const Formula& value);
/// With a mark after the name of each symbol: the same function of other variables.
Formula renamed(const Formula& formula);
/// With every kEither replaced by its first or second sign.
Formula with_signs(const Formula& formula, bool is_first);

/// A name that an equation may define: x, x_1, AB, f(x), f^{-1}(x), e.
bool is_name(const Formula& formula);

}  // namespace slime::reward
