#include "text/grammar/grammar_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::text {
namespace {

constexpr TokenId kEnd = 40;

/// Forty tokens and an end: letters, digits, pairs of them, and marks, the last of which are special.
GrammarVocabulary small_vocabulary() {
  std::vector<std::string> bytes{"a",   "b",   "c",   "0",     "1",      "2",      "ab", "bc",
                                 "a1",  "12",  "{",   "}",     "\"",     ":",      " ",  ",",
                                 "{\"", "\":", "\"a", "a\"",   "1}",     "\n",     "[",  "]",
                                 "abc", "",    "",    "<end>", "<call>", "</call>"};
  bytes.resize(kEnd);
  bytes.emplace_back("<|end|>");
  return GrammarVocabulary(std::move(bytes), std::vector<TokenId>{kEnd}, {28, 29});
}

std::shared_ptr<const CompiledGrammar> compiled(GrammarKind kind, std::string source) {
  return compile_grammar({.kind = kind, .source = std::move(source)}, small_vocabulary());
}

std::vector<TokenId> allowed_ids(GrammarMatcher& matcher, int64_t width) {
  std::vector<uint32_t> words(static_cast<std::size_t>((width + 31) / 32), 0);
  const auto allowed = matcher.allow(words);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < width; ++id) {
    const bool has_bit = (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
    if (allowed == GrammarMatcher::Allowed::kAny || has_bit) ids.push_back(id);
  }
  return ids;
}

/// Of every way of up to `length` tokens the mask is what the matcher accepts, one by one.
void expect_masks(const std::shared_ptr<const CompiledGrammar>& grammar, std::size_t length,
                  std::size_t least_ways) {
  std::vector<std::vector<TokenId>> ways{{}};
  for (std::size_t at = 0; at < ways.size(); ++at) {
    GrammarMatcher matcher(grammar);
    for (const TokenId id : ways[at]) ASSERT_TRUE(matcher.accept(id));
    if (matcher.is_finished()) continue;
    const std::vector<TokenId> ids = allowed_ids(matcher, grammar->width());
    std::vector<TokenId> accepted;
    for (TokenId id = -1; id <= grammar->width(); ++id) {
      if (!matcher.accept(id)) continue;
      accepted.push_back(id);
      matcher.rollback(1);
    }
    EXPECT_EQ(ids, accepted);
    EXPECT_EQ(matcher.may_end(), !ids.empty() && ids.back() == grammar->width() - 1);
    for (const TokenId id : ids) {
      if (ways[at].size() == length) break;
      ways.push_back(ways[at]);
      ways.back().push_back(id);
    }
  }
  EXPECT_GE(ways.size(), least_ways);
}

TEST(GrammarMatcher, AllowsTheTokensThatItAccepts) {
  expect_masks(compiled(GrammarKind::kRegex, "(abc|a1|b){1,3}(12)?"), 4, 50);
  expect_masks(compiled(GrammarKind::kRegex, "a{1,3}b{0,2}[12]{2,}"), 5, 50);
  expect_masks(
      compiled(GrammarKind::kJsonSchema,
               R"({"$defs": {"n": {"type": "object", "properties": {"a": {"type": "integer"},
      "b": {"$ref": "#/$defs/n"}}, "required": ["a"]}}, "$ref": "#/$defs/n"})"),
      5, 50);
  expect_masks(
      compiled(GrammarKind::kJsonSchema,
               R"({"properties": {"ab": {"type": "string", "maxLength": 3}}, "required": ["ab"]})"),
      5, 50);
}

/// Strings of up to four characters that a grammar accepts, one by one.
std::set<std::string> accepted_texts(const std::shared_ptr<const CompiledGrammar>& grammar,
                                     std::string_view alphabet) {
  std::set<std::string> accepted;
  std::vector<std::string> texts{""};
  for (std::size_t at = 0; at < texts.size(); ++at) {
    const std::string text = texts[at];
    GrammarMatcher matcher(grammar);
    bool follows = true;
    for (std::size_t i = 0; follows && i < text.size(); ++i)
      follows = matcher.accept_text(text.substr(i, 1));
    if (!follows) continue;
    if (matcher.may_end()) accepted.insert(text);
    if (text.size() == 4) continue;
    for (const char character : alphabet) texts.push_back(text + character);
  }
  return accepted;
}

TEST(GrammarMatcher, CountsAreThoseOfTheirAlternatives) {
  const std::pair<const char*, const char*> twins[] = {
      {"[abc]{1,3}", "[abc]|[abc][abc]|[abc][abc][abc]"},
      {"[abc]{2}", "[abc][abc]"},
      {"a?[bc]{0,2}", "a?|a?[bc]|a?[bc][bc]"},
      {"[ab]{2,}1", "[ab][ab][ab]*1"},
      {"1|[ab]{1,2}", "1|[ab]|[ab][ab]"},
      {"[^a1]{1,2}", "[^a1]|[^a1][^a1]"},
      {".{2,3}", "..|..."},
      {"[ab]{1,2}[bc]{1,2}", "([ab]|[ab][ab])([bc]|[bc][bc])"},
  };
  for (const auto& [counted, spelled] : twins) {
    const auto grammar = compiled(GrammarKind::kRegex, counted);
    EXPECT_EQ(accepted_texts(grammar, "abc1\n"),
              accepted_texts(compiled(GrammarKind::kRegex, spelled), "abc1\n"))
        << counted;
    expect_masks(grammar, 3, 1);
  }
}

TEST(GrammarMatcher, TextsOfJsonWithCountsAreThoseOfTheirAlternatives) {
  const std::pair<const char*, const char*> twins[] = {
      {R"({"type": "string", "maxLength": 2})", R"({"type": "string", "pattern": "^.?.?$"})"},
      {R"({"type": "string", "pattern": "^[ab]{1,2}$"})",
       R"({"enum": ["a", "b", "aa", "ab", "ba", "bb"]})"},
      {R"({"anyOf": [{"type": "string", "pattern": "^a{1,2}$"}, {"type": "string", "maxLength": 1}]})",
       R"({"anyOf": [{"enum": ["a", "aa"]}, {"type": "string", "pattern": "^.?$"}]})"},
  };
  for (const auto& [counted, spelled] : twins) {
    const auto grammar = compiled(GrammarKind::kJsonSchema, counted);
    EXPECT_EQ(accepted_texts(grammar, "\"ab"),
              accepted_texts(compiled(GrammarKind::kJsonSchema, spelled), "\"ab"))
        << counted;
    expect_masks(grammar, 3, 1);
  }
}

TEST(GrammarMatcher, AConstantThatLooksLikeAPlaceOfATextIsAConstant) {
  const auto grammar = compiled(
      GrammarKind::kJsonSchema,
      R"({"anyOf": [{"const": "slime.text.0"}, {"type": "string", "pattern": "^ab{1,2}$"}]})");
  for (const char* text : {"\"slime.text.0\"", "\"ab\"", "\"abb\""}) {
    GrammarMatcher matcher(grammar);
    EXPECT_TRUE(matcher.accept_text(text)) << text;
    EXPECT_TRUE(matcher.may_end()) << text;
  }
}

TEST(GrammarMatcher, ATextThatEndsInACountEndsWithAnEndToken) {
  GrammarMatcher matcher(compiled(GrammarKind::kRegex, "[ab]{1,2}"));
  EXPECT_FALSE(matcher.may_end());
  EXPECT_FALSE(matcher.accept(kEnd));
  EXPECT_TRUE(matcher.accept(6)) << "ab";
  EXPECT_TRUE(matcher.may_end());
  EXPECT_EQ(allowed_ids(matcher, 41), (std::vector<TokenId>{kEnd}));
  EXPECT_TRUE(matcher.accept(kEnd));
  EXPECT_TRUE(matcher.is_finished());
  EXPECT_FALSE(matcher.may_end());
  EXPECT_FALSE(matcher.accept_text("a"));
  matcher.rollback(2);
  EXPECT_FALSE(matcher.is_finished());
  EXPECT_EQ(matcher.num_accepted(), 0);
  EXPECT_FALSE(matcher.accept_text(std::string("a\x01", 2))) << "what stands for the end";
  EXPECT_TRUE(matcher.accept(0));
}

TEST(GrammarMatcher, TokensMayCloseSeveralRulesAtOnce) {
  std::vector<std::string> bytes{"(",  ")", "x",  "((",  "))", "x)", "x))", ")))",
                                 "(x", "+", ")+", ")+(", "[",  "]",  "])",  ""};
  const GrammarVocabulary vocabulary(std::move(bytes), std::vector<TokenId>{15});
  for (const char* source :
       {"root ::= \"(\" root \")\" | \"x\"", "root ::= root \"+\" root | \"(\" root \")\" | \"x\"",
        "root ::= a | \"[\" root \"]\"\na ::= \"(\" root \")\" | \"x\" # both ways"})
    expect_masks(compile_grammar({.kind = GrammarKind::kEbnf, .source = source}, vocabulary), 5,
                 20);
}

TEST(GrammarMatcher, EndsWithAnEndToken) {
  GrammarMatcher matcher(compiled(GrammarKind::kRegex, "ab?"));
  EXPECT_FALSE(matcher.may_end());
  EXPECT_FALSE(matcher.accept(kEnd));
  EXPECT_TRUE(matcher.accept(6)) << "ab";
  EXPECT_TRUE(matcher.may_end());
  EXPECT_EQ(allowed_ids(matcher, 41), (std::vector<TokenId>{kEnd}));
  EXPECT_TRUE(matcher.accept(kEnd));
  EXPECT_TRUE(matcher.is_finished());
  EXPECT_FALSE(matcher.accept(0));
  std::vector<uint32_t> words(2, 0);
  EXPECT_EQ(matcher.allow(words), GrammarMatcher::Allowed::kNone);
  matcher.rollback(2);
  EXPECT_FALSE(matcher.is_finished());
  EXPECT_TRUE(matcher.accept(0));
  EXPECT_EQ(matcher.num_accepted(), 1);
  EXPECT_THROW(matcher.rollback(2), BugError);
}

TEST(GrammarMatcher, SpecialTokensAreForGrammarsThatSpellThem) {
  GrammarMatcher text(compiled(GrammarKind::kRegex, "[^x]*"));
  const std::vector<TokenId> ids = allowed_ids(text, 41);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 27), 1) << "an ordinary token";
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 28), 0);
  EXPECT_FALSE(text.accept(28));
  GrammarMatcher call(
      compiled(GrammarKind::kStructuralTag, R"({"type": "structural_tag", "format": {"type": "tag",
      "begin": "<call>", "content": {"type": "regex", "pattern": "[^x]*"}, "end": ""}})"));
  EXPECT_TRUE(call.accept(28));
  EXPECT_FALSE(call.accept(29)) << "</call> is not spelled";
  EXPECT_TRUE(call.accept(0));
}

TEST(GrammarMatcher, TokensWithoutBytesAreNeverAllowed) {
  GrammarMatcher matcher(compiled(GrammarKind::kRegex, "[\\s\\S]*"));
  const std::vector<TokenId> ids = allowed_ids(matcher, 41);
  for (TokenId id = 25; id < kEnd; ++id) {
    const bool has_bytes = id == 27;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id), has_bytes ? 1 : 0) << id;
  }
}

TEST(GrammarMatcher, ATextThatTheVocabularyCannotWriteIsAnError) {
  EXPECT_THROW(compiled(GrammarKind::kRegex, "xyz"), ConfigError);
  GrammarMatcher matcher(compiled(GrammarKind::kRegex, "ax"));
  EXPECT_TRUE(matcher.accept(0));
  std::vector<uint32_t> words(2, 0);
  EXPECT_EQ(matcher.allow(words), GrammarMatcher::Allowed::kNone);
  EXPECT_NE(matcher.problem(), "");
}

TEST(GrammarMatcher, WhiteSpaceIsBounded) {
  for (const int most : {1, 3}) {
    const auto grammar =
        compile_grammar({.kind = GrammarKind::kJsonSchema,
                         .source = R"({"type": "array", "items": {"type": "integer"}})",
                         .max_whitespace = most},
                        GrammarVocabulary::of_bytes());
    GrammarMatcher matcher(grammar);
    EXPECT_TRUE(matcher.accept_text("["));
    for (int i = 0; i < most; ++i) EXPECT_TRUE(matcher.accept_text(" "));
    EXPECT_FALSE(matcher.accept_text(" "));
  }
  const auto one_form =
      compile_grammar({.kind = GrammarKind::kJsonSchema,
                       .source = R"({"type": "array", "items": {"type": "integer"}})",
                       .max_whitespace = 0},
                      GrammarVocabulary::of_bytes());
  EXPECT_TRUE(GrammarMatcher(one_form).accept_text("[1, 2]"));
  EXPECT_FALSE(GrammarMatcher(one_form).accept_text("[1,2]"));
}

TEST(GrammarMatcher, TheBlankThatATokenizerWritesInFrontOfATextIsNotOfTheText) {
  for (const char* name : {"tiny_metaspace", "tiny_mistral", "tiny_qwen"}) {
    const auto tokenizer =
        Tokenizer::load(std::string(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/") + name);
    const TokenId end = static_cast<TokenId>(tokenizer->vocab_size());
    const GrammarVocabulary vocabulary(*tokenizer, end + 1, std::vector<TokenId>{end});
    const auto grammar =
        compile_grammar({.kind = GrammarKind::kRegex, .source = "a to( the)?"}, vocabulary);
    GrammarMatcher matcher(grammar);
    const std::vector<TokenId> ids = tokenizer->encode("a to the");
    ASSERT_EQ(tokenizer->decode(ids, false), "a to the") << name;
    for (const TokenId id : ids) {
      const auto allowed = allowed_ids(matcher, grammar->width());
      EXPECT_NE(std::ranges::find(allowed, id), allowed.end()) << name << " " << id;
      EXPECT_TRUE(matcher.accept(id)) << name << " " << id;
    }
    EXPECT_TRUE(matcher.may_end()) << name;
    matcher.rollback(std::ssize(ids));
    EXPECT_EQ(matcher.num_accepted(), 0);
    EXPECT_TRUE(matcher.accept(ids.front())) << name;
  }
}

TEST(GrammarMatcher, ABlankIsOfTheTextWhereTheTokenizerKeepsIt) {
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  const json::value file = {
      {"version", "1.0"},
      {"added_tokens", json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"\xc4\xa0", 1}}}, {"merges", json::array()}}}};
  const auto tokenizer = Tokenizer::from_json(json_text(file), "");
  const GrammarVocabulary vocabulary(*tokenizer, 3, std::vector<TokenId>{2});
  GrammarMatcher matcher(compile_grammar({.kind = GrammarKind::kRegex, .source = "a"}, vocabulary));
  EXPECT_EQ(allowed_ids(matcher, 3), std::vector<TokenId>{0}) << "a blank alone is not left out";
}

/// In the order of bytes "}]" comes before "}}]", which holds it and does not begin with it.
TEST(GrammarMatcher, ATokenIsNotRefusedWithOneThatItHoldsInside) {
  const GrammarVocabulary vocabulary(
      std::vector<std::string>{"", "[{\"a\":{\"b\":", "36", "}]", "}}]"}, std::vector<TokenId>{0},
      {});
  GrammarMatcher matcher(compile_grammar(
      {.kind = GrammarKind::kJsonSchema,
       .source =
           R"({"type":"array","items":{"type":"object","properties":{"a":{"type":"object",
             "properties":{"b":{"type":"integer"}},"required":["b"]}},"required":["a"]}})"},
      vocabulary));
  EXPECT_TRUE(matcher.accept(1));
  EXPECT_TRUE(matcher.accept(2));
  EXPECT_EQ(allowed_ids(matcher, 5), (std::vector<TokenId>{2, 4}));
}

TEST(GrammarMatcher, BehindOtherTextABlankCounts) {
  const auto tokenizer =
      Tokenizer::load(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_metaspace");
  const TokenId end = static_cast<TokenId>(tokenizer->vocab_size());
  const GrammarVocabulary vocabulary(*tokenizer, end + 1, std::vector<TokenId>{end});
  const TokenId first = tokenizer->encode("a to").front();
  ASSERT_TRUE(tokenizer->token_bytes(first).starts_with(' '));
  GrammarMatcher matcher(
      compile_grammar({.kind = GrammarKind::kRegex, .source = "a to"}, vocabulary));
  matcher.begin_behind_text();
  EXPECT_FALSE(matcher.accept(first));
  GrammarMatcher blank(
      compile_grammar({.kind = GrammarKind::kRegex, .source = " a to"}, vocabulary));
  EXPECT_FALSE(blank.accept(first));
  blank.begin_behind_text();
  EXPECT_TRUE(blank.accept(first));
}

}  // namespace
}  // namespace slime::text
