#include "help/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "help/wrapped.h"

namespace slime::help {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::StartsWith;

Manual of_a_server() {
  Manual manual{
      .command = "slime serve",
      .summary = "Serves a model.",
      .topics = {{"network", "Network", "docs/server.md", {"--host", "--port"}}},
      .options = {
          {.names = {"--host"}, .value = "WORD", .meaning = "address"},
          {.names = {"--port", "-p"},
           .value = "N",
           .meaning = "port; 0 picks a free one",
           .fallback = "30000",
           .range = "0 - 65535"},
          {.names = {"--dtype"}, .value = "WORD", .choices = {"auto", "float32"}},
          {.names = {"--page-size"}, .value = "N", .meaning = "no effect here", .is_idle = true}}};
  return manual;
}

std::string said(const Manual& manual, const std::vector<std::string>& words) {
  return answer(manual, words, {.width = 80}).text;
}

TEST(Manual, WithoutAWordEverythingThatHasAnEffectIsListed) {
  EXPECT_THAT(said(of_a_server(), {}),
              AllOf(StartsWith("slime serve: Serves a model.\n"), HasSubstr("--port, -p N"),
                    HasSubstr("port; 0 picks a free one [30000]"), HasSubstr("auto, float32"),
                    HasSubstr("network"), HasSubstr("all 4, 1 of them without effect here"),
                    Not(HasSubstr("--page-size"))));
  EXPECT_THAT(said(of_a_server(), {"all"}), HasSubstr("--page-size"));
}

TEST(Manual, FirstOptionsStandForTheRestWhereThereAreSome) {
  Manual manual = of_a_server();
  manual.first = {{"Address", {"--port"}}};
  EXPECT_THAT(said(manual, {}),
              AllOf(HasSubstr("--port"), HasSubstr("port [30000]"), Not(HasSubstr("--dtype"))));
}

TEST(Manual, AnOptionIsToldWithAllThereIsToKnow) {
  Manual manual = of_a_server();
  manual.details = [](const Option& option) {
    return std::vector<std::string>{"More of " + option.names[0] + "."};
  };
  for (const char* word : {"--port", "port", "PORT", "-p"}) {
    EXPECT_THAT(said(manual, {word}),
                AllOf(HasSubstr("0 picks a free one"), HasSubstr("Default: 30000."),
                      HasSubstr("Range: 0 - 65535."), HasSubstr("More of --port."),
                      HasSubstr("slime serve --help network"), HasSubstr("docs/server.md"),
                      Not(HasSubstr("--host"))))
        << word;
  }
  EXPECT_THAT(said(manual, {"dtype"}), HasSubstr("Allowed: auto, float32."));
}

TEST(Manual, ATopicListsItsOptions) {
  EXPECT_THAT(said(of_a_server(), {"network"}),
              AllOf(HasSubstr("--host"), HasSubstr("--port"), HasSubstr("docs/server.md"),
                    Not(HasSubstr("--dtype"))));
}

TEST(Manual, AnyOtherWordIsSearchedFor) {
  EXPECT_THAT(said(of_a_server(), {"free one"}), HasSubstr("--port"));
  EXPECT_THAT(said(of_a_server(), {"float32"}), HasSubstr("--dtype"));
  const Answer none = answer(of_a_server(), std::vector<std::string>{"--prot"}, {});
  EXPECT_FALSE(none.is_found);
  EXPECT_THAT(none.text, HasSubstr("nothing about \"--prot\"; did you mean --port?"));
}

TEST(Manual, NamesOfOtherSystemsAreAnsweredWithOurs) {
  Manual manual = of_a_server();
  manual.hint = [](const std::string&) { return "; here it is --port"; };
  EXPECT_THAT(said(manual, {"listen"}), HasSubstr("nothing about \"listen\"; here it is --port"));
}

TEST(Manual, WordsBehindHelpAreThoseAsked) {
  using Words = std::vector<std::string>;
  EXPECT_THAT(words_behind_help(Words{"-h"}), Optional(ElementsAre()));
  EXPECT_THAT(words_behind_help(Words{"--help", "reward", "--lr"}),
              Optional(ElementsAre("reward", "--lr")));
  EXPECT_THAT(words_behind_help(Words{"--help=lr"}), Optional(ElementsAre("lr")));
  EXPECT_THAT(words_behind_help(Words{"--lr", "--help"}), Optional(ElementsAre("--lr")));
  EXPECT_THAT(words_behind_help(Words{"--lr", "1", "--help", "data"}),
              Optional(ElementsAre("data")));
  EXPECT_THAT(words_behind_help(Words{"--lr", "1", "--help"}), Optional(ElementsAre()));
  EXPECT_EQ(words_behind_help(Words{"--lr", "1"}), std::nullopt);
}

TEST(Wrapped, LinesBreakBetweenWordsAndALongWordHasItsOwn) {
  EXPECT_EQ(wrapped("one two three four", 10, 2), "one two\n  three\n  four");
  EXPECT_EQ(wrapped("a bbbbbbbbbbbbbbb c", 8, 0), "a\nbbbbbbbbbbbbbbb\nc");
  EXPECT_EQ(wrapped("a\nb  c", 80, 0), "a b c");
  EXPECT_EQ(wrapped("\u00e4\u00e4\u00e4\u00e4 b", 6, 0), "\u00e4\u00e4\u00e4\u00e4 b");
}

TEST(Wrapped, ColumnsAreSideBySideWhereThereIsRoom) {
  EXPECT_EQ(in_columns({{"--a N", "first"}, {"--longer", "second"}}, 80),
            "  --a N     first\n  --longer  second\n");
  EXPECT_EQ(in_columns({{"--a N", "first"}}, 40), "  --a N\n      first\n");
  EXPECT_EQ(in_columns({{"--a", "x"}, {"--much-too-long", "y"}}, 80, 5),
            "  --a  x\n  --much-too-long\n       y\n");
}

}  // namespace
}  // namespace slime::help
