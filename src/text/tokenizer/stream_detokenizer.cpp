#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/unicode.h"

namespace slime::text {

StreamDetokenizer::StreamDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDetokenizer::push(TokenId id) {
  const Tokenizer::Parts& parts = *tokenizer_->parts_;
  if (!parts.spellings.contains(id) || (skip_special_tokens_ && parts.is_special(id))) return {};
  if (is_first_) {
    undecided_ += parts.decoder->first_bytes(id);
  } else {
    undecided_ += parts.decoder->bytes(id);
  }
  is_first_ = false;
  std::string decided;
  undecided_.erase(0, append_decided(undecided_, decided));
  return release(std::move(decided));
}

std::string StreamDetokenizer::flush() {
  std::string text = release(to_valid_utf8(undecided_));
  // What release() held back at the end is what Strip takes away, at most.
  *this = StreamDetokenizer(*tokenizer_, skip_special_tokens_);
  return text;
}

/// Applies the decoder's Strip to a text that arrives in pieces.
std::string StreamDetokenizer::release(std::string text) {
  const DecodeStrip& strip = tokenizer_->parts_->decoder->strip();
  if (strip.content.empty()) return text;
  text = held_back_ + text;
  held_back_.clear();
  while (num_stripped_ < strip.start && text.starts_with(strip.content)) {
    text.erase(0, strip.content.size());
    ++num_stripped_;
  }
  if (!text.empty()) num_stripped_ = strip.start;  // the text has begun
  for (std::size_t i = 0; i < strip.stop && text.ends_with(strip.content); ++i) {
    held_back_ += strip.content;
    text.resize(text.size() - strip.content.size());
  }
  return text;
}

}  // namespace slime::text
