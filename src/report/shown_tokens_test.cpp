#include "report/shown_tokens.h"

#include <gtest/gtest.h>

namespace slime::report {
namespace {

TEST(ShownTokens, TrainedOnesStandInBracketsOrAreGreen) {
  const auto tokenizer =
      text::Tokenizer::load(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_smollm");
  const std::vector<TokenId> ids = tokenizer->encode("2+3?5");
  std::vector<uint8_t> mask(ids.size(), 0);
  mask.back() = 1;
  EXPECT_EQ(shown_tokens(ids, mask, *tokenizer, false), "2+3?[[5]]");
  EXPECT_EQ(shown_tokens(ids, {}, *tokenizer, false), "2+3?5");
  const std::string colored = shown_tokens(ids, mask, *tokenizer, true);
  EXPECT_NE(colored.find("32m5\033[0m"), std::string::npos) << colored;
  EXPECT_EQ(colored.find("[["), std::string::npos);
}

TEST(ShownTokens, ACharacterOfSeveralTokensIsWhole) {
  const auto tokenizer =
      text::Tokenizer::load(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_smollm");
  const std::string text = "a\xe2\x82\xac\xf0\x9f\x98\x80z";
  const std::vector<TokenId> ids = tokenizer->encode(text);
  EXPECT_EQ(shown_tokens(ids, {}, *tokenizer, false), text);
  // No colour lies within the bytes of a character.
  EXPECT_NE(shown_tokens(ids, {}, *tokenizer, true).find("\xe2\x82\xac"), std::string::npos);
}

TEST(ShownTokens, NothingOfARowSteersTheTerminal) {
  const auto tokenizer =
      text::Tokenizer::load(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_smollm");
  const std::vector<TokenId> ids = tokenizer->encode("a\033[2J\xc2\x9b");
  EXPECT_EQ(shown_tokens(ids, {}, *tokenizer, false), "a\\x1b[2J\\x9b");
}

}  // namespace
}  // namespace slime::report
