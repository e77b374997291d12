#include "text/tokenizer/token_decoder.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "core/error.h"
#include "text/tokenizer/byte_alphabet.h"

namespace slime::text {
namespace {

constexpr std::size_t kBytesLimit = std::size_t{256} << 20;

/// The byte that "<0x41>" names.
std::optional<unsigned char> named_byte(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling.back() != '>')
    return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(spelling.data() + 3, spelling.data() + 5, value, 16);
  if (error != std::errc() || end != spelling.data() + 5) return std::nullopt;
  return static_cast<unsigned char>(value);
}

std::string rewritten(const DecodeMetaspace& step, std::string_view token, bool is_first) {
  const std::string_view space = is_first && step.drops_in_first ? "" : " ";
  std::string out;
  for (std::size_t i = 0; i < token.size();) {
    if (token.substr(i).starts_with(step.replacement)) {
      out += space;
      i += step.replacement.size();
    } else {
      out += token[i++];
    }
  }
  return out;
}

}  // namespace

std::string stripped(std::string text, const DecodeStrip& strip) {
  if (strip.content.empty()) return text;
  for (std::size_t i = 0; i < strip.start && text.starts_with(strip.content); ++i)
    text.erase(0, strip.content.size());
  for (std::size_t i = 0; i < strip.stop && text.ends_with(strip.content); ++i) {
    text.resize(text.size() - strip.content.size());
  }
  return text;
}

TokenDecoder::TokenDecoder(std::vector<DecoderStep> steps, StringsById spellings,
                           std::string_view where)
    : spellings_(std::move(spellings)), joins_with_spaces_(steps.empty()) {
  sort_steps(std::move(steps), where);
  is_byte_.resize(static_cast<std::size_t>(spellings_.end_id()));
  std::size_t total_bytes = 0;
  for (TokenId id = 0; id < spellings_.end_id(); ++id) {
    if (!spellings_.contains(id)) continue;
    const std::string bytes = decode_token(spellings_[id], false);
    total_bytes += bytes.size();
    if (total_bytes > kBytesLimit) {
      throw ConfigError(
          fmt::format("{}: decoder: the decoded vocabulary exceeds {} bytes", where, kBytesLimit));
    }
    bytes_.add(id, bytes);
    is_byte_[static_cast<std::size_t>(id)] = has_byte_tokens_ && named_byte(spellings_[id]);
  }
}

void TokenDecoder::sort_steps(std::vector<DecoderStep> steps, std::string_view where) {
  enum Part { kTokens, kBytes, kFused, kStripped } part = kTokens;
  for (DecoderStep& step : steps) {
    const bool is_strip = std::holds_alternative<DecodeStrip>(step);
    if (part == kTokens && (is_strip || std::holds_alternative<DecodeReplace>(step) ||
                            std::holds_alternative<DecodeMetaspace>(step))) {
      token_steps_.push_back(std::move(step));
    } else if (part == kTokens && std::holds_alternative<DecodeByteLevel>(step)) {
      spells_bytes_ = true;
      part = kFused;  // its result is one string
    } else if (part == kTokens && std::holds_alternative<DecodeByteFallback>(step)) {
      has_byte_tokens_ = true;
      part = kBytes;
    } else if (part <= kFused && std::holds_alternative<DecodeFuse>(step)) {
      part = kFused;
    } else if (part == kFused && is_strip) {
      strip_ = std::get<DecodeStrip>(std::move(step));
      part = kStripped;
    } else {
      throw ConfigError(
          fmt::format("{}: decoder: this order of steps is not known; known is: any of Replace, "
                      "Metaspace, Strip; then "
                      "ByteLevel or ByteFallback; then Fuse; then one Strip",
                      where));
    }
  }
}

std::string TokenDecoder::decode_token(std::string_view spelling, bool is_first) const {
  std::string text(spelling);
  if (joins_with_spaces_) return is_first ? text : " " + text;
  for (const DecoderStep& step : token_steps_) {
    if (const auto* replace = std::get_if<DecodeReplace>(&step)) {
      text = replace_all(text, replace->pattern, replace->content, growth_limit(spelling.size()));
    } else if (const auto* metaspace = std::get_if<DecodeMetaspace>(&step)) {
      text = rewritten(*metaspace, text, is_first);
    } else {
      text = stripped(std::move(text), std::get<DecodeStrip>(step));
    }
  }
  if (has_byte_tokens_) {
    if (const auto byte = named_byte(text)) return std::string(1, static_cast<char>(*byte));
  }
  if (spells_bytes_) {
    if (auto bytes = spelled_bytes(text)) return *std::move(bytes);
  }
  return text;
}

std::string TokenDecoder::first_bytes(TokenId id) const {
  return decode_token(spellings_[id], true);
}

}  // namespace slime::text
