#include "reward/answer_equality.h"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <string>

#include "core/json.h"
#include "text/packed_files_for_tests.h"

namespace slime::reward {
namespace {

struct Pair {
  std::string gold, answer, category;
  bool is_equal, by_math_verify;
};

std::vector<Pair> committed_pairs() {
  std::istringstream file(text::unpacked(SLIME_SOURCE_DIR "/tests/grading/math_pairs.jsonl.xz"));
  std::vector<Pair> pairs;
  for (std::string line; std::getline(file, line);) {
    const json::object pair = parse_json(line, "math_pairs.jsonl").as_object();
    pairs.push_back({std::string(pair.at("gold").as_string()),
                     std::string(pair.at("answer").as_string()),
                     std::string(pair.at("category").as_string()), pair.at("equal").as_bool(),
                     pair.at("math_verify").as_bool()});
  }
  return pairs;
}

TEST(AnswerEquality, DecidesTheCommittedPairsBetterThanMathVerify) {
  const std::vector<Pair> pairs = committed_pairs();
  ASSERT_GT(pairs.size(), 1000U);
  int right = 0, right_there = 0, wrong = 0, wrong_there = 0;
  for (const Pair& pair : pairs) {
    const bool is_taken = are_equal_answers(pair.gold, pair.answer);
    right += static_cast<int>(pair.is_equal && is_taken);
    wrong += static_cast<int>(!pair.is_equal && is_taken);
    right_there += static_cast<int>(pair.is_equal && pair.by_math_verify);
    wrong_there += static_cast<int>(!pair.is_equal && pair.by_math_verify);
    // Integrals, limits, derivatives and infinite sums are compared by form, not evaluated.
    if (pair.category == "calculus and sums") continue;
    EXPECT_EQ(is_taken, pair.is_equal)
        << pair.category << ": " << pair.gold << " || " << pair.answer;
  }
  EXPECT_GE(right, right_there);
  EXPECT_LT(wrong, wrong_there);
  EXPECT_EQ(wrong, 0);
}

TEST(AnswerEquality, AnAnswerEqualsItselfAndOrderMattersLittle) {
  for (const Pair& pair : committed_pairs()) {
    EXPECT_TRUE(are_equal_answers(pair.gold, pair.gold)) << pair.gold;
    // What a list leaves out is left out on both sides.
    if (!pair.is_equal) {
      EXPECT_FALSE(are_equal_answers(pair.answer, pair.gold)) << pair.gold << " || " << pair.answer;
    }
  }
}

TEST(AnswerEquality, IntegralsAndLimitsOfOneFormAreEqual) {
  for (const auto& [gold, answer] : std::vector<std::pair<const char*, const char*>>{
           {"\\int_{0}^{1} x^2 \\, dx", "\\int_0^1 x^2 dx"},
           {"\\int_0^1 x^{2}\\,\\mathrm{d}x", "\\int_0^1 x^2 dx"},
           {"\\int_0^1 t^2 dt", "\\int_0^1 x^2 dx"},
           {"\\int_0^1 (1+x) dx", "\\int_0^1 (x+1) dx"},
           {"\\int x \\cdot e^{x} \\, dx", "\\int x e^x dx"},
           {"\\int_0^\\pi \\sin(x) dx", "\\int_0^{\\pi} \\sin x \\, dx"},
           {"\\int_{a}^{b} f(x)\\,dx", "\\int_a^b f(x) dx"},
           {"\\int_0^1 x dx \\cdot 2", "2\\int_0^1 x dx"},
           {"\\int_0^1 \\frac{dx}{x+1}", "\\int_0^1 \\frac{1}{x+1} dx"},
           {"\\int_0^{\\infty} e^{-x}\\,dx", "\\int_0^\\infty e^{-x} dx"},
           {"\\int_0^{\\infty} e^{-x}\\,dx", "\\int_0^{+\\infty} e^{-x} dx"},
           {"\\int_0^1 x dx", "\\int\\limits_0^1 x dx"},
           {"\\int_{1}^{2}\\int_{0}^{1} x y\\,dx\\,dy", "\\int_1^2 \\int_0^1 xy \\, dx \\, dy"},
           {"\\lim_{x \\rightarrow 0} \\frac{\\sin(x)}{x}", "\\lim_{x\\to 0} \\frac{\\sin x}{x}"},
           {"\\lim_{n \\to \\infty} 1/n", "\\lim_{n\\to\\infty} \\frac{1}{n}"},
           {"\\lim_{y \\to 0} (1+y)", "\\lim_{x\\to 0} (x+1)"},
           {"\\lim_{x \\to 0^{+}} \\ln(x)", "\\lim_{x\\to 0^+} \\ln x"},
           {"\\lim_{x\\to2}x^{2}", "\\lim\\limits_{x\\to 2} x^2"},
           {"1 + \\frac12 \\int_{0}^{1} x \\, dx", "\\frac{1}{2}\\int_0^1 x dx + 1"},
           {"\\int_0^1 x dx", "\\displaystyle\\int_0^1 x dx"},
           {"\\iint_{D} x dA", "\\iint_D x\\,dA"},
       }) {
    EXPECT_TRUE(are_equal_answers(gold, answer)) << gold << " || " << answer;
    EXPECT_TRUE(are_equal_answers(answer, gold)) << answer << " || " << gold;
  }
}

TEST(AnswerEquality, IntegralsAndLimitsOfOtherFormsAreNot) {
  for (const auto& [gold, answer] : std::vector<std::pair<const char*, const char*>>{
           {"\\int_0^2 x^2 dx", "\\int_0^1 x^2 dx"},
           {"\\int_0^1 x^3 dx", "\\int_0^1 x^2 dx"},
           {"\\int_1^0 x^2 dx", "\\int_0^1 x^2 dx"},
           {"\\int_0^1 xy dy", "\\int_0^1 xy dx"},
           {"\\lim_{x\\to 1} x", "\\lim_{x\\to 0} x"},
           {"\\lim_{x\\to 0^-} \\ln x", "\\lim_{x\\to 0^+} \\ln x"},
           {"\\lim_{x\\to 0} x", "\\int_0^1 x dx"},
           {"\\frac{1}{3}", "\\int_0^1 x dx"},
           {"\\int_0^1 x dx", "\\int x dx"},
           {"\\lim_{n\\to\\infty} b_n", "\\lim_{n\\to\\infty} a_n"},
           {"\\int_0^1 \\int_0^1 xy \\, dx \\, dy", "\\int_0^1 \\int_0^1 xy \\, dx \\, dz"},
           {"\\int y dy", "\\int x dx"},
           {"\\int_E x dx", "\\int_D x dx"},
           {"\\int_0^1 x", "\\int_0^1 x dx"},
           {"\\lim_{x\\to 0} (x + 1)", "\\lim_{x\\to 0} x + 1"},
       }) {
    EXPECT_FALSE(are_equal_answers(gold, answer)) << gold << " || " << answer;
    EXPECT_FALSE(are_equal_answers(answer, gold)) << answer << " || " << gold;
  }
}

TEST(AnswerEquality, NothingEqualsNothing) {
  EXPECT_FALSE(are_equal_answers("", ""));
  EXPECT_FALSE(are_equal_answers(" ", "{}"));
  EXPECT_FALSE(are_equal_answers("5", ""));
  EXPECT_FALSE(are_equal_answers("\\{\\}", "\\\\"));
  EXPECT_FALSE(are_equal_answers("1", "\\begin{pmatrix}1&\\end{pmatrix}"));
}

TEST(AnswerEquality, RadiansAreAUnit) {
  EXPECT_FALSE(are_equal_answers("30\\text{ radians}", "30^\\circ"));
  EXPECT_FALSE(are_equal_answers("30\\text{ degrees}", "30\\text{ rad}"));
  EXPECT_FALSE(are_equal_answers("30\\text{ rad}", "30\\text{ m}"));
  EXPECT_TRUE(are_equal_answers("30^\\circ", "\\frac{\\pi}{6}\\text{ radians}"));
  EXPECT_TRUE(are_equal_answers("2\\text{ rad}", "2"));
  EXPECT_TRUE(are_equal_answers("2\\text{ rad}", "2\\text{ radians}"));
  EXPECT_TRUE(are_equal_answers("2\\text{ rad/s}", "2\\text{ s}^{-1}"));
}

TEST(AnswerEquality, SeparatorsMayTouch) {
  EXPECT_TRUE(are_equal_answers("red and and blue", "blue, red"));
  EXPECT_FALSE(are_equal_answers("red or or or", "blue"));
}

TEST(AnswerEquality, IsExact) {
  EXPECT_TRUE(are_equal_answers("0.1+0.2", "0.3"));
  EXPECT_FALSE(are_equal_answers("\\frac{1}{3}", "0.3333333333333333"));
  EXPECT_FALSE(are_equal_answers("0", "1e-300"));
  EXPECT_FALSE(are_equal_answers("\\sqrt{2}", "\\frac{47321}{33461}"));
  EXPECT_FALSE(are_equal_answers("\\sqrt{2}", "\\sqrt{2}+((((\\sqrt{2}-1)^9)^9)^9)^9"));
  EXPECT_FALSE(are_equal_answers("e^{\\pi\\sqrt{163}}", "262537412640768744"));
  EXPECT_TRUE(are_equal_answers("\\frac{1}{2004!}", "\\frac{2005}{2005!}"));
}

/// Answers that cost a reader without limits seconds, memory or its stack.
TEST(AnswerEquality, HostileAnswersEnd) {
  std::vector<std::string> answers;
  for (const char* part : {"(",
                           "{",
                           "\\{",
                           "[",
                           "|",
                           "A(",
                           "C(1,",
                           "\\frac{1}{",
                           "\\sqrt{",
                           "-",
                           "^-",
                           "x^",
                           "9^",
                           "1+",
                           "1,",
                           "(1,2),",
                           "x=",
                           "1<x<",
                           "!",
                           "3000!+",
                           "\\pm 1+",
                           "\\pm 1,",
                           "\\cup[0,1]",
                           "[0,1]\\cup",
                           "\\sum_{k=1}^{500}",
                           "\\sum_{k=1}^{500}(",
                           "\\ln(",
                           "\\sin(x+",
                           "\\sqrt{x+",
                           "x^{x+",
                           "is ",
                           "answer is ",
                           "a or ",
                           "\\{x|",
                           "\\begin{pmatrix}",
                           "1&",
                           "\\binom{9999}{",
                           "(1+",
                           "\\text{",
                           "\\mathbf{",
                           "5 cm ",
                           "\\degree",
                           "x'",
                           "1_",
                           "\\overline{",
                           "7 apples and ",
                           "\\langle ",
                           "gcd(12,",
                           "\\lfloor"}) {
    for (const std::size_t size : {300U, 1900U, 15'000U}) {
      std::string text;
      while (text.size() < size) text += part;
      answers.push_back(text);
      answers.push_back(text + "1");
      std::string closed = text + "x";
      for (std::size_t i = 0; i < size / std::string_view(part).size(); ++i)
        closed += std::string_view(part).find('(') != std::string_view::npos ? ")" : "}";
      answers.push_back(closed);
    }
  }
  std::string roots = "1", logs = "1", series = "k";
  for (int i = 2; i < 120; ++i) {
    roots += "+\\sqrt[" + std::to_string(i % 7 + 2) + "]{" + std::to_string(i) + "}";
    logs += "+\\sin(\\ln " + std::to_string(i) + "x)";
  }
  for (int i = 0; i < 5; ++i) series = "\\sum_{k=1}^{500}(" + series + ")";
  for (const std::string& text :
       {roots, logs, series, std::string("9^{9^{9^9}}"), std::string("2^{65000}-3^{40000}"),
        std::string("(2^{60000}+1)/(3^{30000}+1)+(5^{20000}+1)/(7^{20000}+1)")})
    answers.push_back(text);
  for (const std::string& answer : answers) {
    const auto start = std::chrono::steady_clock::now();
    are_equal_answers(answer + "+1", "1+" + answer);
    are_equal_answers("x_1,x_2", answer);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5))
        << answer.substr(0, 40);
  }
}

}  // namespace
}  // namespace slime::reward
