#pragma once

/// Parts of a Tokenizer. Private to text/tokenizer/tokenizer.cpp and
/// text/tokenizer/stream_detokenizer.cpp.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/token_decoder.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_definition.h"

namespace slime::text {

struct Tokenizer::Parts {
  /// Throws ConfigError, lines starting with `where`, when the parts of the definition contradict
  /// each other.
  Parts(TokenizerDefinition definition, std::string_view where);

  /// Tokens that stand for one range of the text: one added token, or what became of the text
  /// between two of them.
  struct Stretch {
    Range range;
    std::size_t first_token = 0;
  };
  /// Appends the tokens of `text`, which is valid UTF-8; and, where asked for, their stretches.
  void encode(std::string_view text, bool split_special, std::vector<TokenId>& ids,
              std::span<const uint32_t> seams = {},
              std::vector<Stretch>* stretches = nullptr) const;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;
  bool is_special(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < special.size() &&
           special[static_cast<std::size_t>(id)];
  }

  TokenizerDefinition definition;  // without merges and decoder, which became bpe and decoder
  StringsById spellings;           // model and added tokens
  std::vector<bool> special;       // by id
  std::map<TokenId, TokenKind> added_kinds;
  std::optional<AddedTokenMatcher> raw;         // added tokens looked for in the text as it is
  std::optional<AddedTokenMatcher> normalized;  // and in the normalized text
  std::unique_ptr<const Bpe> bpe;
  std::unique_ptr<const TokenDecoder> decoder;

 private:
  void encode_plain(std::string_view text, bool begins_input, std::vector<TokenId>& ids) const;
};

}  // namespace slime::text
