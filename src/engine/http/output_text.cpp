#include "engine/http/output_text.h"

#include <algorithm>

namespace slime::engine {

OutputText::OutputText(const SamplingParams& params, const text::Tokenizer& tokenizer)
    : detokenizer_(tokenizer, params.skip_special_tokens),
      stop_(params.stop),
      trims_stop_(!params.no_stop_trim) {}

void OutputText::add(std::span<const TokenId> ids, const std::optional<FinishReason>& finish) {
  const bool ends_with_stop = finish && finish->kind == FinishReason::Kind::kStop && trims_stop_;
  if (ends_with_stop && std::holds_alternative<TokenId>(finish->matched) && !ids.empty()) {
    ids = ids.first(ids.size() - 1);
  }
  std::size_t before_last = text_.size();
  for (const TokenId id : ids) {
    before_last = text_.size();
    text_ += detokenizer_.push(id);
  }
  if (!finish) {
    num_visible_ = std::max(num_visible_, text_.size() - held_back());
    return;
  }
  text_ += detokenizer_.flush();
  if (const auto* stop = ends_with_stop ? std::get_if<std::string>(&finish->matched) : nullptr) {
    // It ends in the last token: one that ended before min_new_tokens did is text.
    const std::size_t first = before_last < stop->size() ? 0 : before_last - stop->size() + 1;
    const std::size_t position = text_.find(*stop, std::max(first, num_visible_));
    if (position != std::string::npos) text_.resize(position);
  }
  num_visible_ = std::max(num_visible_, text_.size());
}

/// Length of the longest end of the text that a stop string starts with.
std::size_t OutputText::held_back() const {
  if (!trims_stop_) return 0;
  std::size_t longest = 0;
  for (const std::string& stop : stop_) {
    for (std::size_t length = std::min(stop.size(), text_.size()); length > longest; --length) {
      if (text_.ends_with(std::string_view(stop).substr(0, length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}

}  // namespace slime::engine
