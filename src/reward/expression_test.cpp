#include "reward/expression.h"

#include <gtest/gtest.h>

#include "reward/expression_equality.h"
#include "reward/latex_to_text.h"

namespace slime::reward {
namespace {

TEST(Expression, PutsOperationsInTheOrderOfEvaluation) {
  const auto postfix = [](std::string_view text) {
    std::string out;
    const std::optional<Expression> expression = parse_expression(text);
    if (!expression) return std::string("failure");
    for (const ExpressionStep& step : *expression) {
      constexpr std::string_view kSigns = "    +-*/^~!sl";
      out += step.text.empty() ? (step.kind == ExpressionStep::Kind::kPi
                                      ? "pi"
                                      : std::string(1, kSigns[static_cast<std::size_t>(step.kind)]))
                               : step.text;
      out += ' ';
    }
    return out;
  };
  EXPECT_EQ(postfix("1+2*3"), "1 2 3 * + ");
  EXPECT_EQ(postfix("1/2x"), "1 2 / x * ");
  EXPECT_EQ(postfix("-x^2"), "x 2 ^ ~ ");
  EXPECT_EQ(postfix("2^-x^2"), "2 x 2 ^ ~ ^ ");
  EXPECT_EQ(postfix("2**3"), "2 3 ^ ");
  EXPECT_EQ(postfix("ab2"), "a b * 2 * ");
  EXPECT_EQ(postfix("x_1y"), "x_1y ");
  EXPECT_EQ(postfix("3sqrt(5)x"), "3 5 s * x * ");
  EXPECT_EQ(postfix("sqrt(2)^2"), "2 s 2 ^ ");
  EXPECT_EQ(postfix("2pi"), "2 pi * ");
  EXPECT_EQ(postfix("(1)(2)"), "1 2 * ");
  EXPECT_EQ(postfix("5!"), "5 ! ");
  EXPECT_EQ(postfix(".5e2"), ".5e2 ");
  EXPECT_EQ(postfix("2e"), "2 e * ");
  for (const char* bad : {"", "1+", "(1", "1)", "1..2", "1.5.5", "007", "0x1f", "2j", "1_000", "re",
                          "oo", "x=1", "a,b", "5!!", "1//2", "\xcf\x80"}) {
    EXPECT_EQ(postfix(bad), "failure") << bad;
  }
}

TEST(ExpressionEquality, IsExactForRationalsAndDoubleAfterADecimal) {
  EXPECT_TRUE(are_equal_expressions("1/3+1/6", "1/2"));
  EXPECT_TRUE(are_equal_expressions("1/10", "0.1"));
  EXPECT_FALSE(are_equal_expressions("1/3", "0.333"));
  EXPECT_TRUE(are_equal_expressions("2^-2", "1/4"));
  EXPECT_TRUE(are_equal_expressions("20!/19!", "20"));
  EXPECT_FALSE(are_equal_expressions("10^9*10^9*10^9", "10^9*10^9*10^9+1"));
  EXPECT_FALSE(are_equal_expressions("1/0", "1/0"));
  EXPECT_FALSE(are_equal_expressions("0^-1", "0^-1"));
}

TEST(ExpressionEquality, UsesPrincipalBranchesAtGenericPoints) {
  EXPECT_TRUE(are_equal_expressions("(x+y)^2", "x^2+2xy+y^2"));
  EXPECT_TRUE(are_equal_expressions("sqrt(8)", "2sqrt(2)"));
  EXPECT_TRUE(are_equal_expressions("ln(4)", "2ln(2)"));
  EXPECT_TRUE(are_equal_expressions("1/(x-1)-1/(x+1)", "2/(x^2-1)"));
  EXPECT_FALSE(are_equal_expressions("sqrt(x^2)", "x"));
  EXPECT_FALSE(are_equal_expressions("pi", "3.14159"));
  EXPECT_FALSE(are_equal_expressions("x/0", "x/0"));
}

TEST(ExpressionEquality, AnApproximationOfARootIsNotTheRoot) {
  EXPECT_FALSE(are_equal_expressions("sqrt(2)", "47321/33461"));  // 3e-10 apart
  EXPECT_FALSE(are_equal_expressions("sqrt(2)", "3166815962/2239277041"));
  EXPECT_FALSE(are_equal_expressions("pi", "245850922/78256779"));
  EXPECT_FALSE(are_equal_expressions("ln(2)", "777451915729368/1121626023352385"));
  EXPECT_FALSE(are_equal_expressions("2^x", "2^x+1/10^9^9"));
  EXPECT_FALSE(are_equal_expressions("sqrt(2)", "sqrt(2)+((((sqrt(2)-1)^9)^9)^9)^9"));
  EXPECT_FALSE(are_equal_expressions("x", "x+((((sqrt(2)-1)^9)^9)^9)"));
  EXPECT_FALSE(are_equal_expressions("1/(sqrt(2)sqrt(3)-sqrt(6))", "1/(sqrt(2)sqrt(3)-sqrt(6))"));
}

TEST(ExpressionEquality, ClosedFormsAreComparedAlgebraically) {
  EXPECT_TRUE(are_equal_expressions("1/(sqrt(2)-1)", "sqrt(2)+1"));
  EXPECT_TRUE(are_equal_expressions("sqrt(2)+sqrt(3)", "sqrt(5+2sqrt(6))"));
  EXPECT_TRUE(are_equal_expressions("sqrt(3+2sqrt(2))", "1+sqrt(2)"));
  EXPECT_TRUE(are_equal_expressions("sqrt(-4)", "2sqrt(-1)"));
  EXPECT_TRUE(are_equal_expressions("4pi/sqrt(2)", "2pi*sqrt(2)"));
  EXPECT_TRUE(are_equal_expressions("sqrt(x)sqrt(x)", "x"));
  EXPECT_TRUE(are_equal_expressions("2^x*2^x", "4^x"));
  EXPECT_TRUE(are_equal_expressions("ln(8)/ln(2)+sqrt(2)", "3+sqrt(2)"));
  EXPECT_TRUE(are_equal_expressions("sqrt(2)^8", "16"));
  EXPECT_FALSE(are_equal_expressions("sqrt(2)+sqrt(3)", "sqrt(10)"));
  // Roots that are not the same by their form alone, to the limit of their number.
  EXPECT_TRUE(
      are_equal_expressions("sqrt(2)+sqrt(3)+sqrt(5)+sqrt(7)", "sqrt(7)+sqrt(5)+sqrt(3)+sqrt(2)"));
}

TEST(ExpressionEquality, AnAnswerCannotReachIntoTheTruth) {
  EXPECT_FALSE(are_equal_expressions("x", "x)+(0"));
}

TEST(LatexToText, ConvertsWhatAnswersUse) {
  EXPECT_EQ(latex_to_text("x^{\\frac{1}{2}}"), "x^ 1/2");
  EXPECT_EQ(latex_to_text("\\frac\\pi2"), "pi/2");
  EXPECT_EQ(latex_to_text("\\sqrt[3]{2}"), "sqrt(2)");
  EXPECT_EQ(latex_to_text("\\left[1,\\infty\\right)"), "[1,inf)");
  EXPECT_EQ(latex_to_text("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"), "[ 1 2;3 4 ]");
  EXPECT_EQ(latex_to_text("\\begin{array}{c}\\begin{matrix}1\\end{matrix}&2\\end{array}"),
            "[ [ 1 ] 2 ]");
  EXPECT_EQ(latex_to_text("\\unknown{x}\\text{ and }\\{1\\}"), "x and {1}");
  EXPECT_EQ(latex_to_text("\\mathbb{R}"), "\u211d");
  EXPECT_EQ(latex_to_text("\\frac{1}{2"), "1/2");
  std::string nested;
  for (int i = 0; i < 200; ++i) nested += "\\frac{";
  EXPECT_EQ(latex_to_text(nested), std::nullopt);
}

}  // namespace
}  // namespace slime::reward
