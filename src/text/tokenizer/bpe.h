#pragma once

/// Byte-pair encoding of one word: start from its characters (or bytes), and join the neighbouring
/// pair of the lowest rank, leftmost first, until no pair of the merge table is left (Sennrich et
/// al., arXiv 1508.07909).
///
/// Short words scan for the lowest rank; long ones (a megabyte without a cut is possible) use a
/// heap over a linked list, O(n log n). Each thread keeps the results of recent short words.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.h"
#include "text/tokenizer/vocabulary.h"

namespace slime::text {

/// Tokens `left` and `right` join to `result`; lower ranks first.
struct Merge {
  TokenId left;
  TokenId right;
  uint32_t rank;
  TokenId result;
};

struct BpeOptions {
  /// Words are raw bytes and the vocabulary is spelled with stand-ins (the ByteLevel step came
  /// last); otherwise words are text as the vocabulary spells it.
  bool works_on_bytes = false;
  bool ignore_merges = false;  // a word that is a token is that token
  bool byte_fallback = false;  // an unknown character becomes its bytes' tokens, <0xE4> ...
  bool fuse_unk = false;       // neighbouring unknown characters become one unknown token
  TokenId unk_id = -1;         // for unknown characters; without one they vanish
  std::string continuing_subword_prefix;  // spelled before every character but the first
  std::string end_of_word_suffix;         // spelled behind the last character
};

class Bpe final {
 public:
  /// All ids in `merges` are in `vocabulary`, which must outlive this. A pair that occurs twice
  /// takes its last row.
  Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, BpeOptions options);

  /// Appends the tokens of `word`, which is not empty. Any number of threads at once.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  struct PairEntry {
    uint64_t pair;  // left << 32 | right
    uint32_t rank;
    TokenId result;
  };
  static constexpr uint64_t kFree = UINT64_MAX;

  void encode_uncached(std::string_view word, std::vector<TokenId>& ids) const;
  /// The tokens of the word's single characters or bytes.
  void split_to_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  void split_to_characters(std::string_view word, std::vector<TokenId>& symbols) const;
  bool append_byte_tokens(std::string_view text, std::vector<TokenId>& symbols) const;
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(std::vector<TokenId>& symbols) const;
  /// The merge of this pair; nullptr when there is none.
  const PairEntry* find_pair(TokenId left, TokenId right) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  Vocabulary byte_vocabulary_;  // by bytes, when works_on_bytes
  /// Token of each byte: single bytes, or <0x00> ...; -1 for none.
  std::array<TokenId, 256> byte_tokens_{};
  std::vector<PairEntry> pairs_;  // open addressing, a power of two at most half full
  int pair_shift_ = 0;            // hash bits to slot
  uint64_t serial_;               // names this model in the threads' caches
};

}  // namespace slime::text
