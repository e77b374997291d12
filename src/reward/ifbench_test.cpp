#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

json::value score(const std::string& id, const std::string& arguments, const std::string& text) {
  const json::object metadata{{"instruction_id_list", json::array{id}},
                              {"kwargs", parse_json(arguments, "kwargs")}};
  const auto got = score_ifbench(text, metadata);
  EXPECT_TRUE(got) << id << ": " << got.error().message;
  return got.value_or(json::value("error"));
}

struct Case {
  const char* id;
  const char* arguments;
  const char* follows;
  const char* does_not;
};

class IfbenchInstruction : public testing::TestWithParam<Case> {};

TEST_P(IfbenchInstruction, TellsWhoFollowsIt) {
  const Case& c = GetParam();
  EXPECT_EQ(score(c.id, c.arguments, c.follows), json::value(1.0)) << c.id << ": " << c.follows;
  EXPECT_EQ(score(c.id, c.arguments, c.does_not), json::value(0.0)) << c.id << ": " << c.does_not;
}

INSTANTIATE_TEST_SUITE_P(
    All, IfbenchInstruction,
    testing::Values(
        Case{"count:word_count_range", R"([{"min_words": 2, "max_words": 3}])", "one two three",
             "one"},
        Case{"count:unique_word_count", R"([{"N": 3}])", "a b, B! c", "a A a b"},
        Case{"count:conjunctions", R"([{"small_n": 2}])", "This, and that; but no.", "and and"},
        Case{"count:numbers", R"([{"N": 2}])", "1,000 and 7", "1 2 3"},
        Case{"count:punctuation", "[]", "A, b. C! D?! E; f: g?", "Well?! No."},
        Case{"count:keywords_multiple",
             R"([{"keyword1": "a1", "keyword2": "b2", "keyword3": "c3", "keyword4": "d4",
                  "keyword5": "e5"}])",
             "a1 b2 b2 c3 c3 c3 d4 d4 d4 d4 d4 e5 e5 e5 e5 e5 e5 e5", "a1 b2 c3 d4 e5"},
        Case{"ratio:overlap", R"([{"reference_text": "abcd", "percentage": 50}])", "abcx", "abcd"},
        Case{"words:alphabet", "[]", "Young zebras ask bees.", "Ask zebras."},
        Case{"words:vowel", "[]", "a big bad bat", "a big bad one of us"},
        Case{"words:consonants", "[]", "strong winds", "a b"},
        Case{"words:prime_lengths", "[]", "to the women", "four"},
        Case{"words:repeats", R"([{"small_n": 1}])", "each word once", "twice twice"},
        Case{"words:paragraph_last_first", "[]", "So it is so.\nYes, yes", "one two"},
        Case{"words:no_consecutive", "[]", "big cats dance", "big bats"},
        Case{"format:parentheses", "[]", "a ([{([x])}])", "((((a))))"},
        Case{"format:newline", "[]", "one\ntwo\nthree", "one two"},
        Case{"format:line_indent", "[]", "a\n b\n  c", "a\nb"},
        Case{"format:quote_unquote", "[]", "\"yes\" it is", "so \"quoted\""},
        Case{"format:list", R"([{"sep": "!!"}])", "!! a !! b", "!! a"},
        Case{"format:thesis", "[]", "<i>All flows.</i> Because.", "<i></i> text"},
        Case{"format:sub-bullets", "[]", "* a\n - b\n* c\n - d", "* a\n* b - c"},
        Case{"format:no_whitespace", "[]", "dense", "not dense"},
        Case{"repeat:repeat_change", R"([{"prompt_to_repeat": "Write it down"}])", "Put it down",
             "Write it down"},
        Case{"repeat:repeat_span",
             R"([{"prompt_to_repeat": "Write it down", "n_start": 6, "n_end": 7}])", "IT", "down"},
        Case{"custom:multiples", "[]", "14, 21, 28, 35, 42, 49", "14 21 28"},
        Case{"custom:date_format_list", "[]", "1776-07-04, 1800-02-28", "1776-02-30"},
        Case{"keywords:existence", R"([{"keywords": ["red", "Blue"]}])", "Red and blue", "red"},
        Case{"keywords:forbidden_words", R"([{"forbidden_words": ["cat"]}])", "category", "a cat."},
        Case{"keywords:letter_frequency",
             R"([{"letter": "e", "let_frequency": 2, "let_relation": "at least"}])", "see", "be"},
        Case{"length_constraints:number_words", R"([{"num_words": 3, "relation": "less than"}])",
             "two words", "one two three"},
        Case{"detectable_content:number_placeholders", R"([{"num_placeholders": 2}])",
             "[name] at [place]", "[name"},
        Case{"detectable_format:number_bullet_lists", R"([{"num_bullets": 2}])", "* a\n- b", "* a"},
        Case{"detectable_format:json_format", "[]", "```json\n{\"a\": 1}\n```", "{a: 1}"},
        Case{"detectable_format:title", "[]", "<<joy>>\ntext", "<< >>"},
        Case{"startend:end_checker", R"([{"end_phrase": "The end."}])", "So. the end.",
             "The end. No"},
        Case{"startend:quotation", "[]", "\"all of it\"", "\"part\" of it"},
        Case{"combination:two_responses", "[]", "one\n******\ntwo", "one\n******\none"},
        Case{"punctuation:no_comma", "[]", "none here", "one, here"}));

TEST(Ifbench, EveryInstructionHasToBeFollowed) {
  const json::object metadata{{"instruction_id_list", json::array{" punctuation:no_comma ", nullptr,
                                                                  "format:no_whitespace"}},
                              {"kwargs", json::array{}}};
  EXPECT_EQ(score_ifbench("dense", metadata).value(), json::value(1.0));
  EXPECT_EQ(score_ifbench("not dense", metadata).value(), json::value(0.0));
  EXPECT_EQ(score_ifbench(" ", metadata).value(), json::value(0.0));
}

TEST(Ifbench, WithoutInstructionsTheScoreIsZero) {
  EXPECT_EQ(score_ifbench("text", {}).value(), json::value(0.0));
}

TEST(Ifbench, WhatCannotBeDecidedIsAFailureAndNotAZero) {
  const auto of = [](const char* id, const char* arguments) {
    return score_ifbench("text", {{"instruction_id_list", json::array{id}},
                                  {"kwargs", parse_json(arguments, "kwargs")}})
        .error()
        .message;
  };
  EXPECT_THAT(of("words:start_verb", "[]"), testing::HasSubstr("needs NLTK"));
  EXPECT_THAT(of("made:up", "[]"), testing::HasSubstr("unknown instruction made:up"));
  EXPECT_THAT(of("count:numbers", "[{}]"), testing::HasSubstr("N is missing"));
}

}  // namespace
}  // namespace slime::reward
