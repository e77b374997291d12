#pragma once

/// Suffix index: texts of token ids that grow side by side, and drafts of what follows a context, from the places
/// where its last tokens occurred before (docs/decisions/0163-drafts.md).
///
///   text 0:  5 7 9 2 4 1        context:  ... 8 7 9
///   text 1:  6 7 9 2 4 3        drafts:   2 (2 of 2)  4 (2 of 2)  3 (1 of 2; of equal counts the most recent)
///
/// A token's place is linked to the latest earlier ones that end with the same 1, 2 and 4 tokens. A proposal looks
/// at the 32 latest places with the context's last 4 tokens, or else 2, or else 1, keeps those with the longest
/// common ending of at most 12, and lets them vote for the next token.
///
/// Memory, bytes a token: 17 in blocks of 32, and in the three tables 6 to 11 (17 while one grows) an ending that is
/// there for the first time: 24 in prose, more in noise. One thread.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/token_span.h"
#include "engine/drafts/draft.h"
#include "engine/drafts/ending_table.h"

namespace slime::engine {

class SuffixIndex {
 public:
  /// The most tokens of a context that count.
  static constexpr int64_t kContext = 12;

  SuffixIndex();

  /// A new text, behind the last kContext tokens of `before`: they can be matched, and the first token of the text
  /// is one that followed them. Returns its number: 0, 1, ...
  int64_t begin(std::span<const TokenId> before = {});
  /// Throws BugError when is_full().
  void append(int64_t text, TokenId id);

  /// Tokens appended to a text, and one of them.
  int64_t size(int64_t text) const;
  TokenId token(int64_t text, int64_t index) const;

  /// Replaces `out` by at most `most` drafts of what follows `context`, as long as the product of their shares of the
  /// votes is at least 0.1. The chance is that product with 1 / (length of the match) of a vote against each: one
  /// place that has one token in common foretells less than many, or than one with twelve.
  void propose(std::span<const TokenId> context, int64_t most, std::vector<Draft>& out) const;

  /// No place is left: 67 million tokens.
  bool is_full() const;
  int64_t num_bytes() const;

 private:
  static constexpr int64_t kBlock = 32;
  static constexpr int64_t kLooked = 32;                         // places, for one match
  static constexpr std::array<int64_t, 3> kEndings = {4, 2, 1};  // tokens, by level

  struct Block {
    uint32_t before = 0;  // blocks of the same text; 0: none
    uint32_t after = 0;
    uint32_t size = 0;
    std::array<TokenId, kBlock> tokens;
    std::array<std::array<TextPlace, kBlock>, 3> earlier;  // [level]
  };
  struct Text {
    std::vector<uint32_t> blocks;
    int64_t num_before = 0;  // tokens of the blocks that are not the text's own
    int64_t size = 0;        // of the blocks
  };
  /// Last tokens of a context and the drafts behind it.
  struct Recent {
    std::array<TokenId, kContext> tokens;  // the last `size` of them
    int64_t size = 0;
    explicit Recent(std::span<const TokenId> context);
    void push(TokenId id);
    std::span<const TokenId> all() const { return std::span(tokens).last(size); }
  };
  /// Places of next tokens, most recent first.
  struct Matches {
    std::array<TextPlace, kLooked> next;
    int64_t size = 0;
    int64_t length = 0;  // common tokens before each of them
  };

  const Block& block_of(TextPlace place) const { return *blocks_[place / kBlock]; }
  TokenId token_at(TextPlace place) const { return block_of(place).tokens[place % kBlock]; }
  TextPlace next_of(TextPlace place) const;
  TextPlace push(Text& text, TokenId id);
  void link(TextPlace place, int64_t num_behind_it);
  Ending ending_at(TextPlace place, int64_t length) const;
  int64_t common_ending(std::span<const TokenId> context, TextPlace place) const;
  Matches longest_matches(std::span<const TokenId> context) const;

  std::vector<std::unique_ptr<Block>> blocks_;  // the first is none, so that no place is 0
  std::vector<Text> texts_;
  std::array<EndingTable, 3> tables_;  // [level]
};

}  // namespace slime::engine
