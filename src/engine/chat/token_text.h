#pragma once

/// Text of a response token by token, as far as no stop string can hide it any more.
///
/// Text that was released is never taken back: tokens from the start of what may become a stop
/// string on are held back until that is decided. The stop token, or the stop string and what
/// follows it, are no part of the text unless no_stop_trim.

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/client.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

class TokenText final {
 public:
  /// A token with the text that it decided, which may be empty.
  struct Piece {
    TokenId id = -1;  // -1: none; what the last tokens had left open
    std::string text;
  };

  /// The tokenizer outlives the object.
  TokenText(const SamplingParams& params, bool skips_special_tokens,
            const text::Tokenizer& tokenizer);

  /// New tokens, and the reason when they are the last. The pieces that are released.
  std::vector<Piece> add(std::span<const TokenId> ids, const std::optional<FinishReason>& finish);

 private:
  std::size_t num_undecided() const;
  /// Whole tokens of the first `num_bytes` held back; returns how many bytes they have.
  std::size_t release(std::size_t num_bytes, std::vector<Piece>& out);

  text::StreamDetokenizer detokenizer_;
  std::vector<std::string> stop_;
  bool trims_stop_;
  std::deque<Piece> held_;
  std::string held_text_;  // of held_
};

}  // namespace slime::engine
