#include "text/messages/message_reader.h"

#include <algorithm>
#include <utility>

#include "text/messages/white_space.h"

namespace slime::text {
namespace {

bool reads_calls(const MessageFormat& format, const MessageRequest& request) {
  return format.calls() != nullptr && request.reads_calls && request.tools != nullptr &&
         !request.tools->is_empty();
}

bool reads_reasoning(const MessageFormat& format, const MessageRequest& request) {
  return format.reasoning() != nullptr && request.reads_reasoning;
}

}  // namespace

MessageReader::MessageReader(const MessageFormat& format, MessageRequest request)
    : lexer_(format.marks(reads_calls(format, request), reads_reasoning(format, request))),
      writer_({.parallel_calls = request.parallel_calls,
               .stream_reasoning = request.stream_reasoning,
               .make_id = std::move(request.make_id)}),
      reads_calls_(reads_calls(format, request)) {
  const bool has_reasoning = reads_reasoning(format, request);
  const bool is_call_harmony = reads_calls_ && format.calls()->is_harmony;
  const bool is_reasoning_harmony = has_reasoning && format.reasoning()->is_harmony;
  if (is_call_harmony || is_reasoning_harmony) {
    harmony_.emplace(is_call_harmony, is_reasoning_harmony, request.tail, lexer_, writer_);
    return;
  }
  if (reads_calls_) calls_.emplace(*format.calls(), *request.tools, lexer_, writer_);
  if (!has_reasoning) return;
  const bool is_open = request.tail == PromptTail::kReasoning;
  if (format.reasoning()->marks.empty()) {
    if (is_open) writer_.content(format.reasoning()->opening, {});
    return;
  }
  label_ = format.reasoning()->label;
  part_ = is_open ? Part::kThoughts : Part::kBefore;
}

void MessageReader::feed(std::string_view text) {
  lexer_.feed(text);
  writer_.add_token(lexer_.fed());
  read_items();
}

void MessageReader::feed(TokenId id, std::string_view text) {
  lexer_.feed(id, text);
  writer_.add_token(lexer_.fed());
  read_items();
}

void MessageReader::finish(OutputEnd end) {
  tail_ = lexer_.undecided();
  lexer_.end();
  read_items();
  while (doubt_ != Doubt::kNone || (part_ == Part::kBefore && lexer_.fed() > 0)) {
    if (doubt_ != Doubt::kNone) {
      // What is in doubt never ended. A string that was cut off may have had more text.
      never_ends_[static_cast<std::size_t>(doubt_)] = true;
      const bool is_string = doubt_ == Doubt::kStringEnd || doubt_ == Doubt::kQuoteEnd;
      decide(!is_string || end == OutputEnd::kStop, kNowhere);
    } else {
      part_ = Part::kMessage;
      lexer_.move_to(0);
    }
    read_items();
  }
  if (calls_ && part_ == Part::kMessage) calls_->finish(end, lexer_.fed());
  if (harmony_) harmony_->finish(end, lexer_.fed());
  writer_.finish();
}

void MessageReader::read_items() {
  while (const auto item = lexer_.peek()) {
    if (doubt_ != Doubt::kNone) {
      look_ahead(*item);
    } else {
      lexer_.move_to(read_item(*item));
    }
  }
  lexer_.forget(needed());
}

uint64_t MessageReader::needed() const {
  if (part_ == Part::kBefore) return 0;
  uint64_t needed = doubt_ == Doubt::kNone ? lexer_.cursor() : doubtful_;
  if (calls_) needed = calls_->needed(needed);
  if (harmony_) needed = harmony_->needed(needed);
  return needed;
}

uint64_t MessageReader::read_item(const Item& item) {
  if (!item.is_text() && item.begin >= text_until_ && item.begin != mark_at_) {
    const Doubt doubt = doubt_of(item);
    if (doubt == Doubt::kThinkClose || (doubt != Doubt::kNone && !item.is_sampled)) {
      doubtful_ = item.begin;
      if (!never_ends_[static_cast<std::size_t>(doubt)]) {
        doubt_ = doubt;
        is_escape_ = false;
        return item.end;
      }
      mark_at_ = item.begin;
    }
  }
  switch (part_) {
    case Part::kBefore: {
      const bool is_open = !item.is_text() && item.mark->role == MarkRole::kThinkOpen;
      const bool is_space = item.is_text() && is_all_white_space(lexer_.text(item));
      if (is_open) part_ = Part::kLabel;
      if (is_open || is_space) return item.end;
      part_ = Part::kMessage;
      return 0;
    }
    case Part::kLabel:
      return read_label(item);
    case Part::kThoughts:
      return read_thoughts(item);
    case Part::kBehind:
      return read_behind(item);
    case Part::kMessage:
      return read_message(item);
  }
  return item.end;
}

/// The label behind an opening mark, as far as it is there.
uint64_t MessageReader::read_label(const Item& item) {
  const std::string_view text = item.is_text() ? lexer_.text(item) : std::string_view();
  const std::string_view rest = label_.substr(label_read_);
  const std::string_view shared = text.substr(0, rest.size());
  if (!rest.empty() && !text.empty() && rest.starts_with(shared)) {
    label_read_ += shared.size();
    return item.begin + shared.size();
  }
  part_ = Part::kThoughts;
  // Another word than the label belongs to the thoughts.
  if (!rest.empty())
    writer_.reasoning(label_.substr(0, label_read_), {item.begin - label_read_, item.begin});
  return item.begin;
}

uint64_t MessageReader::read_thoughts(const Item& item) {
  if (!item.is_text() && item.begin >= text_until_) {
    switch (item.mark->role) {
      case MarkRole::kThinkOpen:
        if (has_thoughts_) break;
        label_read_ = 0;  // opened twice is opened once
        part_ = Part::kLabel;
        return item.end;
      case MarkRole::kThinkClose:
        writer_.close_reasoning();
        part_ = Part::kBehind;
        return item.end;
      default:
        if (item.begin != mark_at_) break;
        writer_.read_content_as_reasoning(true);
        part_ = Part::kMessage;
        return item.begin;
    }
  }
  const std::string_view text = lexer_.text(item);
  has_thoughts_ |= !is_all_white_space(text);
  writer_.reasoning(text, {item.begin, item.end});
  return item.end;
}

/// Newlines behind the closing mark belong to the form.
uint64_t MessageReader::read_behind(const Item& item) {
  const std::string_view text = item.is_text() ? lexer_.text(item) : std::string_view();
  const std::size_t newlines = std::min(text.find_first_not_of('\n'), text.size());
  if (newlines < text.size() || !item.is_text()) part_ = Part::kMessage;
  return item.begin + newlines;
}

uint64_t MessageReader::read_message(const Item& item) {
  const bool is_mark = !item.is_text() && item.begin >= text_until_;
  if (harmony_) {
    is_mark ? harmony_->read_mark(item) : harmony_->read_text(item);
  } else if (calls_) {
    is_mark ? calls_->read_mark(item) : calls_->read_text(item, item.begin >= tail_);
  } else {
    writer_.content(lexer_.text(item), {item.begin, item.end});
  }
  return item.end;
}

MessageReader::Doubt MessageReader::doubt_of(const Item& item) const {
  if (part_ == Part::kThoughts) {
    const MarkRole role = item.mark->role;
    const bool opens_call =
        role == MarkRole::kSectionOpen || role == MarkRole::kCallOpen || role == MarkRole::kTagOpen;
    return opens_call ? Doubt::kThinkClose : Doubt::kNone;
  }
  if (part_ != Part::kMessage) return Doubt::kNone;
  if (harmony_) return harmony_->is_doubtful(*item.mark) ? Doubt::kStringEnd : Doubt::kNone;
  if (!calls_) return Doubt::kNone;
  switch (calls_->doubt_of(*item.mark)) {
    case CallMachine::Doubt::kStringEnd:
      return Doubt::kStringEnd;
    case CallMachine::Doubt::kQuoteEnd:
      return Doubt::kQuoteEnd;
    case CallMachine::Doubt::kValueEnd:
      return Doubt::kValueEnd;
    case CallMachine::Doubt::kNone:
      break;
  }
  return Doubt::kNone;
}

void MessageReader::look_ahead(const Item& item) {
  if (doubt_ == Doubt::kStringEnd) return look_for_string_end(item);
  lexer_.move_to(item.end);
  if (item.is_text()) return;
  switch (item.mark->role) {
    case MarkRole::kThinkClose:
      if (doubt_ == Doubt::kThinkClose) decide(false, item.begin);
      return;
    case MarkRole::kQuote:
      if (doubt_ == Doubt::kQuoteEnd) decide(false, item.begin);
      return;
    case MarkRole::kValueClose:
      if (doubt_ == Doubt::kValueEnd) decide(false, item.begin);
      return;
    case MarkRole::kKeyOpen:
      if (doubt_ == Doubt::kValueEnd) decide(true, 0);
      return;
    default:
      return;
  }
}

void MessageReader::look_for_string_end(const Item& item) {
  if (item.is_sampled) return decide(true, 0);  // a token that ends the call, whatever is open
  const std::string_view text = lexer_.text(item);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_escape_ && text[i] == '"') return decide(false, item.begin + i);
    is_escape_ = !is_escape_ && text[i] == '\\';
  }
  lexer_.move_to(item.end);
}

/// The mark in doubt is a mark, or marks up to `text_end` are text: it is read on from there.
void MessageReader::decide(bool is_mark, uint64_t text_end) {
  doubt_ = Doubt::kNone;
  if (is_mark) {
    mark_at_ = doubtful_;
  } else {
    text_until_ = text_end;
  }
  lexer_.move_to(doubtful_);
}

}  // namespace slime::text
