#include "text/messages/message_writer.h"

#include <algorithm>

#include "text/messages/white_space.h"

namespace slime::text {
void MessageWriter::reasoning(std::string_view text, Span at) {
  if (is_closed_) return;
  if (!is_reasoning_begun_) {
    const auto first = std::min(text.find_first_not_of('\n'), text.size());
    text.remove_prefix(first);
    if (text.empty()) return;
    is_reasoning_begun_ = true;
  }
  const std::size_t solid = without_trailing_white_space(text).size();
  if (reasoning_space_.empty()) reasoning_space_at_ = at;
  if (solid > 0) {
    has_reasoning_ = true;
    emit(MessageEvent::Kind::kReasoning, reasoning_space_, {reasoning_space_at_.begin, at.end});
    emit(MessageEvent::Kind::kReasoning, text.substr(0, solid), at);
    reasoning_space_.clear();
    reasoning_space_at_ = at;
  }
  reasoning_space_ += text.substr(solid);
  reasoning_space_at_.end = at.end;
}

void MessageWriter::close_reasoning() {
  while (reasoning_space_.ends_with('\n')) reasoning_space_.pop_back();
  if (has_reasoning_) emit(MessageEvent::Kind::kReasoning, reasoning_space_, reasoning_space_at_);
  reasoning_space_.clear();
  flush_reasoning();
}

void MessageWriter::break_reasoning() {
  if (!has_reasoning_) return;
  while (reasoning_space_.ends_with('\n')) reasoning_space_.pop_back();
  reasoning_space_ += '\n';
  is_reasoning_begun_ = false;
}

void MessageWriter::content(std::string_view text, Span at) {
  if (content_is_reasoning_) return reasoning(text, at);
  if (is_closed_ || text.empty()) return;
  flush_reasoning();
  if (is_waiting()) text.remove_prefix(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
  const std::size_t solid = without_trailing_white_space(text).size();
  if (content_space_.empty()) content_space_at_ = at;
  if (solid > 0) {
    if (is_waiting() && has_content_) content_space_ = "\n";
    emit(MessageEvent::Kind::kContent, content_space_, {content_space_at_.begin, at.end});
    emit(MessageEvent::Kind::kContent, text.substr(0, solid), at);
    has_content_ = is_segment_begun_ = true;
    content_space_.clear();
    content_space_at_ = at;
  }
  content_space_ += text.substr(solid);
  content_space_at_.end = at.end;
}

void MessageWriter::break_content() {
  content_space_.clear();
  is_segment_begun_ = false;
  has_break_ = true;
}

void MessageWriter::begin_call(std::string_view name, std::string_view written_id, Span at) {
  if (is_closed_) return;
  if (content_is_reasoning_) reasoning_space_.clear();
  content_is_reasoning_ = false;
  flush_reasoning();
  break_content();
  const int index = num_calls_++;
  emit(MessageEvent::Kind::kCall, {}, at, index);
  events_.back().name = name;
  events_.back().id = options_.make_id ? options_.make_id(index, name, written_id) : written_id;
}

void MessageWriter::arguments(std::string_view text, Span at) {
  if (!is_closed_) emit(MessageEvent::Kind::kArguments, text, at, num_calls_ - 1);
}

void MessageWriter::end_call(bool is_json, Span at) {
  if (is_closed_) return;
  if (!is_json) ++num_errors_;
  emit(MessageEvent::Kind::kCallEnd, {}, at, num_calls_ - 1);
  is_closed_ = !options_.parallel_calls;
}

void MessageWriter::drop_space() {
  if (content_is_reasoning_) return;
  content_space_.clear();
}

void MessageWriter::finish() {
  if (has_reasoning_) emit(MessageEvent::Kind::kReasoning, reasoning_space_, reasoning_space_at_);
  reasoning_space_.clear();
  flush_reasoning();
  if (!is_waiting() && !is_closed_)
    emit(MessageEvent::Kind::kContent, content_space_, content_space_at_);
  content_space_.clear();
}

void MessageWriter::flush_reasoning() {
  if (!held_reasoning_.text.empty()) events_.push_back(std::exchange(held_reasoning_, {}));
}

void MessageWriter::emit(MessageEvent::Kind kind, std::string_view text, Span at, int call) {
  const bool is_delta = kind != MessageEvent::Kind::kCall && kind != MessageEvent::Kind::kCallEnd;
  if (is_delta && text.empty()) return;
  const FedRange tokens = tokens_of(at);
  MessageEvent* event = nullptr;
  if (kind == MessageEvent::Kind::kReasoning && !options_.stream_reasoning) {
    event = &held_reasoning_;
  } else if (is_delta && !events_.empty() && events_.back().kind == kind &&
             events_.back().call == call) {
    event = &events_.back();
  }
  if (event == nullptr || event->text.empty()) {
    MessageEvent fresh{.kind = kind,
                       .call = call,
                       .text = std::string(text),
                       .id = {},
                       .name = {},
                       .tokens = tokens};
    if (event != nullptr) {
      *event = std::move(fresh);
    } else {
      events_.push_back(std::move(fresh));
    }
    return;
  }
  event->text += text;
  event->tokens.first = std::min(event->tokens.first, tokens.first);
  event->tokens.last = std::max(event->tokens.last, tokens.last);
}

/// A token without text of its own belongs to the next one that has some: its bytes were held back.
FedRange MessageWriter::tokens_of(Span at) const {
  const auto first = std::upper_bound(token_ends_.begin(), token_ends_.end(), at.begin);
  auto index = static_cast<std::size_t>(first - token_ends_.begin());
  const auto begin_of = [this](std::size_t i) { return i == 0 ? 0 : token_ends_[i - 1]; };
  while (index > 0 && begin_of(index - 1) == token_ends_[index - 1] &&
         token_ends_[index - 1] == at.begin)
    --index;
  const auto last = std::lower_bound(token_ends_.begin(), token_ends_.end(), at.end);
  const auto end =
      std::min(static_cast<std::size_t>(last - token_ends_.begin()) + 1, token_ends_.size());
  return {std::min(index, end), end};
}

}  // namespace slime::text
