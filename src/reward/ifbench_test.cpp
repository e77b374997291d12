#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "reward/ifbench_checks.h"
#include "reward/ifbench_text.h"
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
        Case{"count:word_count_range", R"([{"min_words": 3, "max_words": 3}])",
             "it\xe2\x80\x99s \xe2\x80\x94 so", "\xe2\x80\x9cso\xe2\x80\x9d \xe2\x80\x94"},
        Case{"count:unique_word_count", R"([{"N": 3}])", "a b, B! c", "a A a b"},
        Case{"count:conjunctions", R"([{"small_n": 2}])", "This, and that; but no.", "and and"},
        Case{"count:conjunctions", R"([{"small_n": 2}])", "And so, and", "an, andy but"},
        Case{"count:numbers", R"([{"N": 2}])", "1,000 and 7", "1 2 3"},
        Case{"count:punctuation", "[]", "A, b. C! D?! E; f: g?", "Well?! No."},
        Case{"count:keywords_multiple",
             R"([{"keyword1": "a1", "keyword2": "b2", "keyword3": "c3", "keyword4": "d4",
                  "keyword5": "e5"}])",
             "a1 b2 b2 c3 c3 c3 d4 d4 d4 d4 d4 e5 e5 e5 e5 e5 e5 e5", "a1 b2 c3 d4 e5"},
        Case{"ratio:overlap", R"([{"reference_text": "abcd", "percentage": 50}])", "abcx", "abcd"},
        Case{"ratio:overlap", R"([{"reference_text": "ab\u00e9", "percentage": 50}])",
             "ab\xc3\xa9x", "ab\xc3\xa9"},
        Case{"words:alphabet", "[]", "Young zebras ask bees.", "Ask zebras."},
        Case{"words:vowel", "[]", "a big bad bat", "a big bad one of us"},
        Case{"words:consonants", "[]", "strong winds", "a b"},
        Case{"words:prime_lengths", "[]", "to the women", "four"},
        Case{"words:prime_lengths", "[]", "d\xc3\xa9j\xc3\xa0s", "caf\xc3\xa9"},
        Case{"words:palindrome", "[]",
             "level level level level level level level level level \xc3\xa9"
             "bob\xc3\xa9",
             "level level level level level level level level level \xc3\xa9"
             "bb\xc3\xa9"},
        Case{"words:repeats", R"([{"small_n": 1}])", "each word once", "twice twice"},
        Case{"words:paragraph_last_first", "[]", "So it is so.\n--\n\"Yes it is, yes!\"",
             "Yes, yes"},
        Case{"words:no_consecutive", "[]", "big cats dance \xc3\xa9t\xc3\xa9 \xc3\xa8s",
             "big \"bats\""},
        Case{"format:parentheses", "[]", "a ([{([x])}])", "((((a))))"},
        Case{"format:newline", "[]", "one\n--\ntwo\nthree", "one two"},
        Case{"format:line_indent", "[]", "a\n b\n  c", "a\n\tb"},
        Case{"format:quote_unquote", "[]", "\"yes\" it is '\"'", "so \"quoted\" 1."},
        Case{"format:list", R"([{"sep": "!!"}])", "!! a !! b", "!! a"},
        Case{"format:thesis", "[]", "<i>All flows.</i> Because.", "<i> </i> text"},
        Case{"format:sub-bullets", "[]", "* a\n - b\n* c\n - d", "* a\n* b - c"},
        Case{"format:sub-bullets", "[]", "no bullet", "*"},
        Case{"format:no_whitespace", "[]", "dense",
             "not\xc2\xa0"
             "dense"},
        Case{"repeat:repeat_change", R"([{"prompt_to_repeat": "Write it down"}])", "Put it down",
             "Write it down"},
        Case{"repeat:repeat_span",
             R"([{"prompt_to_repeat": "Write it down", "n_start": 6, "n_end": 7}])", "IT", "down"},
        Case{"repeat:repeat_span",
             R"([{"prompt_to_repeat": "\u00e9\u00e9 it", "n_start": 3,
                  "n_end": 9223372036854775807}])",
             "it", "\xc3\xa9 it"},
        Case{"custom:multiples", "[]", "14, 21, 28, 35, 42, 49", "14 21 28"},
        Case{"custom:date_format_list", "[]", "1776-07-04, 1800-02-28", "1776-02-30"},
        Case{"keywords:existence", R"([{"keywords": ["red", "Blue"]}])", "Red and blue", "red"},
        Case{"keywords:forbidden_words", R"([{"forbidden_words": ["cat"]}])", "category", "a cat."},
        Case{"keywords:letter_frequency",
             R"([{"letter": "e", "let_frequency": 2, "let_relation": "at least"}])", "see", "be"},
        Case{"length_constraints:number_words", R"([{"num_words": 3, "relation": "less than"}])",
             "two words", "one two three"},
        Case{"detectable_content:number_placeholders", R"([{"num_placeholders": 2}])",
             "[name] at [place]", "[name] at [pla\nce]"},
        Case{"detectable_format:number_bullet_lists", R"([{"num_bullets": 2}])", "* a\n- b", "* a"},
        Case{"detectable_format:json_format", "[]", "```json\n{\"a\": 1}\n```", "{a: 1}"},
        Case{"detectable_format:title", "[]", "<< >> or <<joy>>\ntext", "<< >>"},
        Case{"startend:end_checker", R"([{"end_phrase": "The end."}])", "So. the end.",
             "The end. No"},
        Case{"startend:end_checker", R"([{"end_phrase": "the end"}])", "So. \"The end\"",
             "The end!"},
        Case{"startend:quotation", "[]", "\"all of it\"", "\"part\" of it"},
        Case{"combination:two_responses", "[]", "one\n******\ntwo", "one\n******\none"},
        Case{"combination:two_responses", "[]", "******\none\n******\ntwo\n******",
             "one\n******\n******\ntwo"},
        Case{"punctuation:no_comma", "[]", "none here", "one, here"},
        Case{"count:person_names", R"([{"N": 2}])", "Mia, Leo and Leo", "Miami with Leo"},
        Case{"count:pronouns", R"([{"N": 3}])", "It's she/her.", "It is a herd."},
        Case{"length_constraints:number_sentences",
             R"([{"num_sentences": 2, "relation": "at least"}])",
             "He met Dr. Lee at 3.5 p.m. today. Why?", "He met Dr. Lee."},
        Case{"ratio:stop_words", R"([{"percentage": 50}])", "the red cat sat", "this is the cat"},
        Case{"ratio:sentence_type", "[]", "One. Two. Three?", "One. Two?"},
        Case{"ratio:sentence_balance", "[]", "One. Two? Three!", "One. Two?"},
        Case{"ratio:sentence_words", "[]", "Abcd. Efgh! Ijkl?", "Abcd. Efg. Hijk."},
        Case{"words:last_first", "[]", "We see it. \"It sees us.\" Us too.",
             "It sees \"us.\" Us too."},
        Case{"words:keywords_specific_position", R"([{"keyword": "red", "n": 2, "m": 3}])",
             "One. It's Red.", "One. It is so Red."},
        Case{"words:words_position", R"([{"keyword": "blue"}])", "A blue sky is blue now.",
             "A blue sky is blue."},
        Case{"words:words_position", R"([{"keyword": " blue "}])", "A blue sky.", "A blue."},
        Case{"sentence:alliteration_increment", "[]", "One two six. Big bad cats.",
             "Big bad. Cat saw."},
        Case{"sentence:increment", R"([{"small_n": 1}])", "One two. One, two three!",
             "One two. Three."},
        Case{"sentence:keyword", R"([{"word": "cat", "N": 2}])", "No. A Cat!",
             "A cat. No category."},
        Case{"format:emoji", "[]", "Good \xf0\x9f\x98\x80. Fine! \xe2\x9d\xa4\xef\xb8\x8f",
             "Good \xf0\x9f\x98\x80. Fine."},
        Case{"format:emoji", "[]", "Good \xe2\x9c\x85",
             "One flag \xf0\x9f\x87\xa9\xf0\x9f\x87\xaa"},
        Case{"format:title_case", "[]", "The Cat Sat o9 3 iPhone Mats", "The Cat on9"},
        Case{"format:no_bullets_bullets", "[]", "One. Two.\n* a\n* b", "One.\n* a\n* b"},
        Case{"custom:word_reverse", "[]", "Symbol national the is eagle bald",
             "The bald eagle is it"},
        Case{
            "custom:sentence_alphabet", "[]",
            "A ab. Be. C cd. De. Ee. Fe. Ge. He. I am. Je. Ke. Le. Me. Ne. Oe. Pe. Qe. Re. Se. Te. "
            "Ue. Ve. We. Xe. Ye. Ze.",
            "Be. A a."},
        Case{"custom:csv_city", "[]",
             "ID,Country,City,Year,Count\n1,a,\"b,c\",1,1\n2,a,b,1,1\n3,a,b,1,1\n4,a,b,1,1\n"
             "5,a,b,1,1\n6,a,b,1,1\n7,a,b,1,1\n",
             "ID,Country,City,Year,Count\n1,a,b,1,1\n"},
        Case{"custom:csv_special_character", "[]",
             "ProductID, Category,Brand,Price,Stock\n1,a,b,1,1\n2,a,\"b!\",1,1\n3,a,b,1,1\n"
             "4,a,b,1,1\n5,a,b,1,1\n6,a,b,1,1\n7,a,b,1,1\n8,a,b,1,1\n9,a,b,1,1\n10,a,b,1,1\n"
             "11,a,b,1,1\n12,a,b,1,1\n13,a,b,1,1\n14,a,b,1,1",
             "ProductID,Category,Brand,Price,Stock\n1,a,b,1,1"},
        Case{"custom:csv_quotes", "[]",
             "\"StudentID\"\t\"Subject\"\t\"Grade\"\t\"Semester\"\t\"Score\"\n"
             "\"1\"\t\"a\"\t\"b\"\t\"1\"\t\"2\"\n\"1\"\t\"a\"\t\"b\"\t\"1\"\t\"2\"\n"
             "\"1\"\t\"a\"\t\"b\"\t\"1\"\t\"2\"",
             "StudentID\tSubject\tGrade\tSemester\tScore\n1\ta\tb\t1\t2\n1\ta\tb\t1\t2\n"
             "1\ta\tb\t1\t2"},
        Case{
            "custom:european_capitals_sort", "[]",
            "Reykjav\xc3\xadk, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, "
            "Vilnius, Minsk, Dublin, Berlin, Amsterdam, Warsaw, London, Brussels, Prague, "
            "Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chi\xc8\x99in\xc4\x83u, Bern, "
            "Ljubljana, Zagreb",
            "Oslo, Helsinki"},
        Case{"custom:mcq_count_length", "[]",
             "Question 1. Why\nA) a\nB) b\nC) c\nD) d\nE) e\nQuestion 2. Why it\nA) a\nB) b\nC) c\n"
             "D) d\nE) e\nQuestion 3. Why is it\nA) a\nB) b\nC) c\nD) d\nE) e\nQuestion 4. Why is "
             "it "
             "so\nA) a\nB) b\nC) c\nD) d\nE) e",
             "Question 1. Why\nA) a"},
        Case{"format:quotes", "[]", "\"a 'b \"c\" d' e\"", "\"a 'b' c\""},
        Case{"format:options", R"([{"options": "yes/no/maybe"}])", "Maybe.", "perhaps"},
        Case{"format:options", R"x([{"options": "a), b), c), d)"}])x", "b)", "b"},
        Case{"detectable_format:number_highlighted_sections", R"([{"num_highlights": 2}])",
             "*one* and **two**", "*one* and * *"},
        Case{"detectable_format:multiple_sections",
             R"([{"section_spliter": "Section", "num_sections": 2}])", "Section 1 a Section 2 b",
             "Section 1 a Section b"},
        Case{"length_constraints:number_paragraphs", R"([{"num_paragraphs": 2}])", "a\n***\nb",
             "a\n***\n\n***\nb"},
        Case{"length_constraints:nth_paragraph_first_word",
             R"([{"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"}])",
             "One.\n\n\"So, two.", "So.\n\nTwo."},
        Case{"length_constraints:nth_paragraph_first_word",
             R"([{"num_paragraphs": 1, "nth_paragraph": 1, "first_word": "So"}])", "so", "sow"},
        Case{"detectable_content:postscript", R"([{"postscript_marker": "P.S."}])",
             "Yes.\np. s. no", "Yes. PS no"},
        Case{"detectable_content:postscript", R"([{"postscript_marker": "P.P.S"}])",
             "Yes.\nP.P.S no", "P.S. no"}));

TEST(Ifbench, EveryInstructionOfTheBenchmarkHasACheckOrASaidLack) {
  int num_checks = 0;
  int num_missing = 0;
  for (const char* id : {"count:word_count_range",
                         "count:unique_word_count",
                         "ratio:stop_words",
                         "ratio:sentence_type",
                         "ratio:sentence_balance",
                         "count:conjunctions",
                         "count:person_names",
                         "ratio:overlap",
                         "count:numbers",
                         "words:alphabet",
                         "words:vowel",
                         "words:consonants",
                         "sentence:alliteration_increment",
                         "words:palindrome",
                         "count:punctuation",
                         "format:parentheses",
                         "format:quotes",
                         "words:prime_lengths",
                         "format:options",
                         "format:newline",
                         "format:emoji",
                         "ratio:sentence_words",
                         "count:words_japanese",
                         "words:start_verb",
                         "words:repeats",
                         "sentence:keyword",
                         "count:pronouns",
                         "words:odd_even_syllables",
                         "words:last_first",
                         "words:paragraph_last_first",
                         "sentence:increment",
                         "words:no_consecutive",
                         "format:line_indent",
                         "format:quote_unquote",
                         "format:list",
                         "format:thesis",
                         "format:sub-bullets",
                         "format:no_bullets_bullets",
                         "custom:multiples",
                         "custom:mcq_count_length",
                         "custom:reverse_newline",
                         "custom:word_reverse",
                         "custom:character_reverse",
                         "custom:sentence_alphabet",
                         "custom:european_capitals_sort",
                         "custom:csv_city",
                         "custom:csv_special_character",
                         "custom:csv_quotes",
                         "custom:date_format_list",
                         "count:keywords_multiple",
                         "words:keywords_specific_position",
                         "words:words_position",
                         "repeat:repeat_change",
                         "repeat:repeat_simple",
                         "repeat:repeat_span",
                         "format:title_case",
                         "format:output_template",
                         "format:no_whitespace"}) {
    num_checks += find_instruction(id) != nullptr ? 1 : 0;
    num_missing += missing_resource(id).empty() ? 0 : 1;
  }
  EXPECT_EQ(num_checks, 56);
  EXPECT_EQ(num_missing, 2);
}

TEST(Ifbench, SentencesEndWhereAReaderSeesIt) {
  using ifbench::sentences_of;
  using ifbench::Words;
  EXPECT_EQ(
      sentences_of("Hi! \"So?\" he said. J. R. Smith of Wax Corp. paid 3.50 at 3 p.m. then."),
      (Words{"Hi!", "\"So?\"", "he said.", "J. R. Smith of Wax Corp. paid 3.50 at 3 p.m. then."}));
  EXPECT_EQ(sentences_of("No. He left at 3 p.m. The U.S. Army, plan B. They."),
            (Words{"No.", "He left at 3 p.m.", "The U.S. Army, plan B.", "They."}));
  EXPECT_EQ(sentences_of("**So.** \"It\" is (odd.) Yes"),
            (Words{"**So.", "** \"It\" is (odd.)", "Yes"}));
  EXPECT_EQ(sentences_of("**So.**"), (Words{"**So.", "**"}));
  // Punkt does not know these abbreviations.
  EXPECT_EQ(sentences_of("Him, e.g. here, etc. then."),
            (Words{"Him, e.g.", "here, etc.", "then."}));
  EXPECT_EQ(sentences_of("Well... yes. Well... Yes."), (Words{"Well... yes.", "Well...", "Yes."}));
  EXPECT_EQ(sentences_of(" \n"), Words{});
}

TEST(Ifbench, TokensAreWordsSignsAndContractions) {
  using ifbench::tokens_of;
  using ifbench::Words;
  EXPECT_EQ(tokens_of("Don't stop, Ann. It's (3.50)."),
            (Words{"Do", "n't", "stop", ",", "Ann", ".", "It", "'s", "(", "3.50", ")", "."}));
  EXPECT_EQ(tokens_of("'So' they cannot..."), (Words{"'", "So", "'", "they", "can", "not", "..."}));
}

TEST(Ifbench, EveryInstructionHasToBeFollowed) {
  const json::object metadata{{"instruction_id_list", json::array{" punctuation:no_comma ", nullptr,
                                                                  "format:no_whitespace"}},
                              {"kwargs", json::array{}}};
  EXPECT_EQ(score_ifbench("dense", metadata).value(), json::value(1.0));
  EXPECT_EQ(score_ifbench("not dense", metadata).value(), json::value(0.0));
  EXPECT_EQ(score_ifbench(" ", metadata).value(), json::value(0.0));
}

TEST(Ifbench, WithoutInstructionsTheScoreIsZeroAsTheOriginalHasItAndStrictlyAFailure) {
  EXPECT_EQ(score_ifbench("text", {}, Grading::kOriginal).value(), json::value(0.0));
  EXPECT_EQ(score_ifbench("text", {}).error().message,
            "ifbench: metadata has no instruction_id_list");
}

TEST(Ifbench, WhatCannotBeDecidedIsAFailureAndNotAZero) {
  const auto of = [](const char* id, const char* arguments) {
    return score_ifbench("text", {{"instruction_id_list", json::array{id}},
                                  {"kwargs", parse_json(arguments, "kwargs")}})
        .error()
        .message;
  };
  EXPECT_THAT(of("words:start_verb", "[]"),
              testing::HasSubstr("words:start_verb needs a part-of-speech tagger"));
  EXPECT_THAT(of("words:odd_even_syllables", "[]"),
              testing::HasSubstr("a dictionary of syllables"));
  EXPECT_THAT(of("language:response_language", "[]"), testing::HasSubstr("a language detector"));
  EXPECT_THAT(of("count:made_up", "[]"), testing::HasSubstr("unknown instruction count:made_up"));
  EXPECT_THAT(of("made:up", "[]"), testing::HasSubstr("unknown instruction made:up"));
  EXPECT_THAT(of("count:numbers", "[{}]"), testing::HasSubstr("N is missing"));
}

}  // namespace
}  // namespace slime::reward
