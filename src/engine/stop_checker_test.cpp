#include "engine/stop_checker.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace slime::engine {
namespace {

/// A vocabulary of the letters: id 0 is "a".
const TokenBytesFn kLetters = [](TokenId id) {
  static const std::string letters = "abcdefghijklmnopqrstuvwxyz";
  return std::string_view(letters).substr(static_cast<std::size_t>(id), 1);
};

/// What ends "abcdefgh", of which the first `remembered` letters are a response already.
std::optional<std::string> end_of(int64_t remembered, const std::string& stop,
                                  int64_t min_new_tokens = 0,
                                  const std::string& longer_stop = "zzzzzz") {
  const SamplingParams params{.min_new_tokens = min_new_tokens, .stop = {stop, longer_stop}};
  const std::vector<TokenId> eos;
  StopChecker checker(params, eos, kLetters);
  std::string text;
  for (TokenId id = 0; id < 8; ++id) {
    text += kLetters(id);
    if (id < remembered) {
      checker.recall({&id, 1});
    } else if (const auto reason = checker.push(id)) {
      EXPECT_EQ(std::get<std::string>(reason->matched), stop);
      return text;
    }
  }
  return std::nullopt;
}

TEST(StopChecker, AStringMayBeginInWhatTheResponseHasAlready) {
  for (int64_t remembered = 0; remembered < 5; ++remembered)
    EXPECT_EQ(end_of(remembered, "cde"), "abcde") << remembered;
}

TEST(StopChecker, AStringThatEndedBeforeEndsNothing) {
  for (int64_t remembered = 5; remembered <= 8; ++remembered)
    EXPECT_EQ(end_of(remembered, "cde"), std::nullopt) << remembered;
}

TEST(StopChecker, AStringEndsNothingBeforeTheFewestTokens) {
  EXPECT_EQ(end_of(0, "cde", 5), "abcde");
  EXPECT_EQ(end_of(0, "cde", 6), std::nullopt) << "and not afterwards either";
  EXPECT_EQ(end_of(0, "fg", 6), "abcdefg");
  EXPECT_EQ(end_of(3, "cde", 2), "abcde") << "the fewest are of new tokens";
  EXPECT_EQ(end_of(3, "cde", 3), std::nullopt);
}

}  // namespace
}  // namespace slime::engine
