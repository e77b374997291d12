#include "text/grammar/ebnf_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/grammar/grammar_for_tests.h"

namespace slime::text {
namespace {

using testing::HasSubstr;

TEST(EbnfReader, RulesMayBeRecursiveOnEitherSide) {
  const char* sum = "# sums\nroot ::= root \"+\" num | num\nnum ::= [0-9]+ # digits\n";
  EXPECT_TRUE(grammar_accepts("ebnf", sum, "1+22+3"));
  EXPECT_FALSE(grammar_accepts("ebnf", sum, "1+"));
  EXPECT_TRUE(grammar_accepts("ebnf", "root ::= \"(\" root \")\" | \"x\"", "((x))"));
}

TEST(EbnfReader, RefusesByLineAndColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"start ::= \"a\"", "line 1, column 1: there is no rule root"},
      {"root ::= \"a\" foo", "line 1, column 14: rule foo is not defined"},
      {"root ::= \"a", "line 1, column 10: this text is not closed"},
      {"root ::=\n  [ab", "line 2, column 3: this class is not closed"},
      {"root ::= (\"a\"", "line 1, column 10: this group is not closed"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule root is there twice"},
      {"root ::= root", "line 1, column 1: rule root matches nothing"},
      {"root ::= \"a\"\nb ::= \"c\" d\nd ::= b", "matches nothing: it never ends"},
      {"root ::= \"a\"{3,2}", "the count's second number"},
      {"root ::= \"a\" (=\"b\")", "a lookahead (= cannot stand here"},
      {"root ::= Token(1)", "line 1, column 10: Token is not supported"},
      {"root ::= \"a\\x00\"", "line 1, column 12: a text cannot hold a NUL"},
      {"root ::= | \"a\"", "line 1, column 10: a text, class, group or rule is expected"},
      {"root ::= [a\\", "line 1, column 10: this class is not closed"},
      {"root ::= \"a\\", "line 1, column 10: this text is not closed"},
      {"", "there is no rule root"},
      {"root = \"a\"", "line 1, column 1: a rule is expected"},
      {"root ::= a{1000}\na ::= b{1000}\nb ::= \"x\"", "counts in counts are"},
      {"root ::= \"a\"**", "a count of a count"},
  };
  for (const auto& [source, error] : cases)
    EXPECT_THAT(grammar_error("ebnf", source), HasSubstr(error)) << source;
  EXPECT_THAT(grammar_error("ebnf", "root ::= " + std::string(200, '(')),
              HasSubstr("more than 100 groups"));
}

TEST(EbnfReader, ManyRulesOfOneAnotherAreRefusedWithoutEnd) {
  std::string source = "root ::= r0\n";
  for (int i = 0; i < 4000; ++i)
    source += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  source += "r4000 ::= \"x\"\n";
  GrammarLimits limits;
  limits.num_rules = 5000;
  limits.text_bytes = 1 << 20;
  EXPECT_THAT(grammar_error("ebnf", source, limits), HasSubstr("in one another"));
  EXPECT_THAT(grammar_error("ebnf", source), HasSubstr("more than 1000 rules"));
}

}  // namespace
}  // namespace slime::text
