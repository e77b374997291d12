#pragma once

/// The "decoder" of tokenizer.json: from token spellings back to text. Nested sequences arrive
/// flattened.
///
/// All published decoders have one shape, and we accept that shape only:
///   1. steps that rewrite each token by itself: Replace, Metaspace, Strip
///   2. at most one that knows bytes: ByteLevel (spellings are stand-ins) or ByteFallback (tokens
///   <0xE4> are bytes)
///   3. Fuse, and then at most one Strip, which then works on the ends of the whole text
/// So each token has fixed bytes, known when the tokenizer is loaded.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/sample.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/vocabulary.h"

namespace slime::text {

struct DecodeReplace {
  Pattern pattern;
  std::string content;
};
struct DecodeMetaspace {
  std::string replacement;
  /// In the first token of a text the replacement becomes nothing, else a space.
  bool drops_in_first = true;
};
struct DecodeStrip {
  std::string content;    // one character
  std::size_t start = 0;  // at most this many of it at the start
  std::size_t stop = 0;   // and at the end
};
struct DecodeByteLevel {};
struct DecodeByteFallback {};
struct DecodeFuse {};
using DecoderStep = std::variant<DecodeReplace, DecodeMetaspace, DecodeStrip, DecodeByteLevel,
                                 DecodeByteFallback, DecodeFuse>;

/// `text` without what `strip` takes from its ends.
std::string stripped(std::string text, const DecodeStrip& strip);

class TokenDecoder final {
 public:
  /// No steps: tokens are joined by spaces. Throws ConfigError that starts with `where` when the
  /// steps have another shape than the one above.
  TokenDecoder(std::vector<DecoderStep> steps, StringsById spellings, std::string_view where);
  TokenDecoder(const TokenDecoder&) = delete;

  /// The bytes of a token, which may depend on whether it is the first of its text.
  std::string_view bytes(TokenId id) const { return bytes_[id]; }
  std::string first_bytes(TokenId id) const;

  /// `<0xE4>` under ByteFallback: a run of such tokens that is no UTF-8 becomes one U+FFFD per
  /// token.
  bool is_byte(TokenId id) const {
    return static_cast<std::size_t>(id) < is_byte_.size() && is_byte_[static_cast<std::size_t>(id)];
  }

  /// What Strip takes from the ends of the whole text; nothing when its content is empty.
  const DecodeStrip& strip() const { return strip_; }

 private:
  void sort_steps(std::vector<DecoderStep> steps, std::string_view where);
  std::string decode_token(std::string_view spelling, bool is_first) const;

  StringsById spellings_;
  std::vector<DecoderStep> token_steps_;  // those of part 1
  bool joins_with_spaces_ = false;
  bool spells_bytes_ = false;
  bool has_byte_tokens_ = false;
  DecodeStrip strip_;
  StringsById bytes_;          // of each token that is not the first of a text
  std::vector<bool> is_byte_;  // by id
};

}  // namespace slime::text
