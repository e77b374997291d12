#pragma once

/// The text of a response while its tokens arrive: incremental detokenising, and what stop strings
/// hide.
///
/// Text that was shown is never taken back: the start of what may become a stop string is held back
/// until it is decided.

#include <span>
#include <string>
#include <string_view>

#include "engine/client.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

class OutputText {
 public:
  /// The tokenizer outlives the object.
  OutputText(const SamplingParams& params, const text::Tokenizer& tokenizer);

  /// New tokens, and the reason when they are the last.
  void add(std::span<const TokenId> ids, const std::optional<FinishReason>& finish);

  /// What a client may see so far. Only grows; the stop token or stop string is cut off unless
  /// no_stop_trim.
  std::string_view visible() const { return std::string_view(text_).substr(0, num_visible_); }

 private:
  std::size_t held_back() const;

  text::StreamDetokenizer detokenizer_;
  std::vector<std::string> stop_;
  bool trims_stop_;
  std::string text_;
  std::size_t num_visible_ = 0;
};

}  // namespace slime::engine
