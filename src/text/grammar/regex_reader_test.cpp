#include "text/grammar/regex_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "text/grammar/grammar_for_tests.h"
#include "text/tokenizer/regex.h"

namespace slime::text {
namespace {

using testing::HasSubstr;

/// The slow twin: PCRE2, of the whole text.
bool matches_whole(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::compile("\\A(?:" + pattern + ")\\z");
  EXPECT_TRUE(regex.has_value()) << pattern;
  std::vector<Range> matches;
  regex->find_all(text, matches);
  return !matches.empty();
}

/// All texts of up to `length` characters of these.
std::vector<std::string> texts_of(const std::vector<std::string>& characters, int length) {
  std::vector<std::string> texts{""};
  for (std::size_t begin = 0; length > 0; --length) {
    const std::size_t end = texts.size();
    for (; begin < end; ++begin) {
      for (const std::string& character : characters) texts.push_back(texts[begin] + character);
    }
  }
  return texts;
}

TEST(RegexReader, AcceptsWhatPcreMatches) {
  const std::vector<std::string> texts = texts_of({"a", "b", "^", "-", "\n", "1", "\xc3\xa9"}, 3);
  for (const char* pattern : {"a*b?",     "(a|b)+1?",   "(?:a|)b",   "a{2}",     "a{1,2}b{0,1}",
                              "[^a]",     "[a-b1]{2,}", ".",         "..",       "[\\^a]+",
                              "[-a]b?",   "[a\\-b]+",   "\\d[\\da]", "\\S\\s?",  "\\x61\\u00e9?",
                              "(a?){2}b", "(|a)(|b)",   "a|b|",      "[^\\n]*",  "(a*)*b",
                              "(ab*)+",   "\\^-?",      "[\\s\\S]b", "[\\^-b]+", "(?<name>a)b"}) {
    json::array given;
    for (const std::string& text : texts) given.push_back(json::value(text));
    const json::object answer = grammar_answer("regex", pattern, given);
    ASSERT_TRUE(answer.at("compiled").as_bool()) << pattern << ": " << json_text(answer);
    std::string pcre = pattern;
    if (const auto at = pcre.find("\\u00e9"); at != std::string::npos)
      pcre.replace(at, 6, "\xc3\xa9");
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const json::object& result = answer.at("results").as_array()[i].as_object();
      EXPECT_EQ(result.at("accepted").as_bool(), matches_whole(pcre, texts[i]))
          << pattern << " of " << json_text(texts[i]);
    }
  }
}

TEST(RegexReader, DigitsAndWordsAreAscii) {
  EXPECT_TRUE(grammar_accepts("regex", "\\W", "\xc3\xa9"));
  EXPECT_FALSE(grammar_accepts("regex", "\\w", "\xc3\xa9"));
  EXPECT_FALSE(grammar_accepts("regex", "\\d", "\xd9\xa1")) << "an Arabic digit";
}

TEST(RegexReader, SaysWhereATextLeavesTheExpression) {
  const json::object answer =
      grammar_answer("regex", "\\d{4}-\\d{2}", {"2026-1x", "2026", "2026-11"});
  const auto& results = answer.at("results").as_array();
  EXPECT_EQ(results[0].as_object().at("refused_at").to_number<int>(), 6);
  EXPECT_EQ(results[1].as_object().at("refused_at").to_number<int>(), 4) << "unfinished";
  EXPECT_TRUE(results[2].as_object().at("refused_at").is_null());
}

TEST(RegexReader, AnchorsStandAtTheEndsOfAlternatives) {
  EXPECT_TRUE(grammar_accepts("regex", "^a$|^b$", "b"));
  EXPECT_TRUE(grammar_accepts("regex", "^(a|b)$", "a"));
  EXPECT_TRUE(grammar_accepts("regex", "(^a|b)c", "ac"));
  EXPECT_TRUE(grammar_accepts("regex", "\\Aab\\Z", "ab"));
  EXPECT_TRUE(grammar_accepts("regex", "^$|abc", ""));
  for (const char* pattern : {"a^b", "a$b", "(a$)b", "(^a)*", "b|a(^c)"})
    EXPECT_THAT(grammar_error("regex", pattern), HasSubstr("anchor")) << pattern;
}

TEST(RegexReader, RefusesByNameAndPosition) {
  const std::pair<const char*, const char*> cases[] = {
      {"ab(?=c)", "position 3: lookahead"},
      {"a(?<!b)", "position 2: lookbehind"},
      {"(a)\\1", "position 4: a backreference"},
      {"a\\b", "position 2: a word boundary"},
      {"(?i)a", "position 1: flags"},
      {"\\p{L}", "position 1: \\p"},
      {"a(b", "position 2: this group is not closed"},
      {"a)b", "position 2: there is no group"},
      {"x[ab", "position 2: this class is not closed"},
      {"[]a]", "position 2: an empty class"},
      {"[b-a]", "position 2: the range"},
      {"[[:alpha:]]", "position 2: POSIX"},
      {"*a", "position 1: a count of nothing"},
      {"a**", "position 3: a count of a count"},
      {"a++", "position 3: possessive"},
      {"a{3,2}", "position 2: the count's second number"},
      {"a{x}", "position 2: this { begins no count"},
      {"\\q", "position 1: \\q is no escape"},
      {"\xc3\xa9\\xg1", "position 2: the escape wants 2"},
      {"\\ud83d", "position 1: the escape is no character"},
      {"((a{1,1000}){1,1000}){1,1000}", "counts in counts are"},
      {"a\\", "position 2: nothing follows"},
  };
  for (const auto& [pattern, error] : cases)
    EXPECT_THAT(grammar_error("regex", pattern), HasSubstr(error)) << pattern;
  EXPECT_THAT(grammar_error("regex", std::string(101, '(')), HasSubstr("more than 100 groups"));
  EXPECT_THAT(grammar_error("regex", "\xff"), HasSubstr("not UTF-8"));
}

TEST(RegexReader, CountsOfCountsAreFollowedInLinearTime) {
  EXPECT_TRUE(grammar_accepts("regex", "((((a*)*)*)*)*b", std::string(5000, 'a') + "b"));
}

TEST(RegexReader, PairsOfSurrogatesAreOneCharacter) {
  EXPECT_TRUE(grammar_accepts("regex", "\\ud83d\\ude80{2}", "\xf0\x9f\x9a\x80\xf0\x9f\x9a\x80"));
  EXPECT_TRUE(grammar_accepts("regex", "\\u{1f680}", "\xf0\x9f\x9a\x80"));
}

TEST(RegexReader, TheFormInJsonEscapesWhatMustBe) {
  const char* schema = R"({"type": "string", "pattern": "^[\\s\\S]\\\\\"$"})";
  EXPECT_TRUE(grammar_accepts("json_schema", schema, R"("a\\\"")"));
  EXPECT_TRUE(grammar_accepts("json_schema", schema, R"("\n\\\"")"));
  EXPECT_TRUE(grammar_accepts("json_schema", schema, R"("\u001f\\\"")"));
  EXPECT_FALSE(grammar_accepts("json_schema", schema, "\"\n\\\\\\\"\"")) << "a raw line break";
  EXPECT_FALSE(grammar_accepts("json_schema", schema, R"("a\\"")"));
}

}  // namespace
}  // namespace slime::text
