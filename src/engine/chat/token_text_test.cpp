#include "engine/chat/token_text.h"

#include <gtest/gtest.h>

#include "engine/http/fake_engine.h"

namespace slime::engine {
namespace {

using Kind = FinishReason::Kind;

std::vector<TokenId> ids_of(std::string_view text) { return {text.begin(), text.end()}; }

std::string joined(const std::vector<TokenText::Piece>& pieces) {
  std::string text;
  for (const TokenText::Piece& piece : pieces) text += piece.text;
  return text;
}

TEST(TokenText, EachTokenComesWithItsText) {
  const auto tokenizer = make_ascii_tokenizer();
  TokenText text({}, true, *tokenizer);
  const auto pieces = text.add(ids_of("ab"), std::nullopt);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[1].id, 'b');
  EXPECT_EQ(pieces[1].text, "b");
}

TEST(TokenText, WhatMayBecomeAStopStringWaits) {
  const auto tokenizer = make_ascii_tokenizer();
  SamplingParams params;
  params.stop = {"STOP"};
  TokenText text(params, true, *tokenizer);
  EXPECT_EQ(joined(text.add(ids_of("a ST"), std::nullopt)), "a ");
  EXPECT_EQ(joined(text.add(ids_of("A STO"), std::nullopt)), "STA ");
  const FinishReason stop{.kind = Kind::kStop, .matched = std::string("STOP")};
  EXPECT_EQ(joined(text.add(ids_of("P"), stop)), "");
}

TEST(TokenText, TheStopTokenIsNoPartOfIt) {
  const auto tokenizer = make_ascii_tokenizer();
  const FinishReason stop{.kind = Kind::kStop, .matched = TokenId{kEndId}};
  TokenText text({}, false, *tokenizer);
  EXPECT_EQ(joined(text.add(std::vector<TokenId>{'a', kEndId}, stop)), "a");
  SamplingParams params;
  params.no_stop_trim = true;
  TokenText kept(params, false, *tokenizer);
  EXPECT_EQ(joined(kept.add(std::vector<TokenId>{'a', kEndId}, stop)), "a<|im_end|>");
}

TEST(TokenText, WhatWaitedComesAtTheEndOfAnother) {
  const auto tokenizer = make_ascii_tokenizer();
  SamplingParams params;
  params.stop = {"STOP"};
  TokenText text(params, true, *tokenizer);
  EXPECT_EQ(joined(text.add(ids_of("ST"), std::nullopt)), "");
  EXPECT_EQ(joined(text.add({}, FinishReason{.kind = Kind::kLength})), "ST");
}

TEST(TokenText, AStopStringInsideOfATokenLeavesWhatIsInFrontOfIt) {
  const auto tokenizer = text::Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,
          "post_processor":null,"decoder":null,"model":{"type":"BPE","vocab":{"a":0,"xSTOPy":1},
          "merges":[]}})",
      "");
  SamplingParams params;
  params.stop = {"STOP"};
  TokenText text(params, true, *tokenizer);
  const auto pieces = text.add(std::vector<TokenId>{0, 1},
                               FinishReason{.kind = Kind::kStop, .matched = std::string("STOP")});
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[1].text, " x");  // this decoder puts a space between tokens
}

}  // namespace
}  // namespace slime::engine
