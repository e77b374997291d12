#include "engine/chat/token_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace slime::engine {

TokenText::TokenText(const SamplingParams& params, bool skips_special_tokens,
                     const text::Tokenizer& tokenizer)
    : detokenizer_(tokenizer, skips_special_tokens),
      stop_(params.stop),
      trims_stop_(!params.no_stop_trim) {}

std::vector<TokenText::Piece> TokenText::add(std::span<const TokenId> ids,
                                             const std::optional<FinishReason>& finish) {
  const bool ends_with_stop = finish && finish->kind == FinishReason::Kind::kStop && trims_stop_;
  if (ends_with_stop && std::holds_alternative<TokenId>(finish->matched) && !ids.empty())
    ids = ids.first(ids.size() - 1);
  for (const TokenId id : ids) {
    held_.push_back({.id = id, .text = detokenizer_.push(id)});
    held_text_ += held_.back().text;
  }
  std::vector<Piece> out;
  if (!finish) {
    release(held_text_.size() - num_undecided(), out);
    return out;
  }
  if (std::string rest = detokenizer_.flush(); !rest.empty()) {
    held_text_ += rest;
    held_.push_back({.id = -1, .text = std::move(rest)});
  }
  std::size_t length = held_text_.size();
  if (const auto* stop = ends_with_stop ? std::get_if<std::string>(&finish->matched) : nullptr)
    length = std::min(length, held_text_.find(*stop));  // what was released holds no stop string
  const std::size_t num_left = length - release(length, out);
  if (num_left > 0) {  // of the token in which the stop string begins
    held_.front().text.resize(num_left);
    out.push_back(std::move(held_.front()));
  }
  held_.clear();
  return out;
}

/// Length of the longest end of the text that a stop string starts with.
std::size_t TokenText::num_undecided() const {
  if (!trims_stop_) return 0;
  std::size_t longest = 0;
  for (const std::string& stop : stop_) {
    for (std::size_t length = std::min(stop.size(), held_text_.size()); length > longest;
         --length) {
      if (std::string_view(held_text_).ends_with(std::string_view(stop).substr(0, length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}

std::size_t TokenText::release(std::size_t num_bytes, std::vector<Piece>& out) {
  std::size_t num_released = 0;
  while (!held_.empty() && num_released + held_.front().text.size() <= num_bytes) {
    num_released += held_.front().text.size();
    out.push_back(std::move(held_.front()));
    held_.pop_front();
  }
  held_text_.erase(0, num_released);
  return num_released;
}

}  // namespace slime::engine
