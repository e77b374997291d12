#include "text/messages/call_machine.h"

#include <utility>

/// Marks in each state, and the end of the output.

namespace slime::text {

CallMachine::Doubt CallMachine::doubt_of(const Mark& mark) const {
  switch (mark.role) {
    case MarkRole::kSectionOpen:
    case MarkRole::kSectionClose:
    case MarkRole::kCallOpen:
    case MarkRole::kCallClose:
    case MarkRole::kTagOpen:
    case MarkRole::kTagClose:
      break;
    default:
      return Doubt::kNone;
  }
  if (is_text_here(mark)) return Doubt::kNone;
  if (state_ == State::kValue) return Doubt::kValueEnd;
  if (state_ == State::kBraced && braced_->is_in_string()) return Doubt::kQuoteEnd;
  const bool is_in_string = (state_ == State::kObject && object_->is_in_string()) ||
                            (state_ == State::kArguments && arguments_->is_in_string());
  return is_in_string ? Doubt::kStringEnd : Doubt::kNone;
}

/// Whether a mark means nothing in this state.
bool CallMachine::is_text_here(const Mark& mark) const {
  const bool is_json = state_ == State::kObject || state_ == State::kArguments;
  switch (mark.role) {
    case MarkRole::kSectionOpen:
    case MarkRole::kCallOpen:
      return state_ == State::kPython && is_bare_;
    case MarkRole::kSectionClose:
      return state_ == State::kContent && !expects_section_close_;
    case MarkRole::kCallClose:
      return (state_ == State::kContent && !expects_call_close_) ||
             (state_ == State::kPython && is_bare_);
    case MarkRole::kTagOpen:
      return is_json || state_ == State::kPython || state_ == State::kHeader ||
             state_ == State::kNameLine || state_ == State::kLineName ||
             state_ == State::kBracedName || state_ == State::kBraced;
    case MarkRole::kTagClose:
      return !is_in_call() || (is_json && !is_tagged_);
    case MarkRole::kSeparator:
      return state_ != State::kHeader && state_ != State::kLineName;
    case MarkRole::kIdOpen:
      return state_ != State::kHeader;
    case MarkRole::kKeyOpen:
      return state_ != State::kParameters && state_ != State::kKey && state_ != State::kKeyTag &&
             state_ != State::kBeforeValue && state_ != State::kValue && state_ != State::kLineName;
    case MarkRole::kKeyClose:
      return state_ != State::kKey;
    case MarkRole::kValueOpen:
      return state_ != State::kBeforeValue;
    case MarkRole::kValueClose:
      return state_ != State::kValue && state_ != State::kParameters &&
             state_ != State::kBeforeValue;
    case MarkRole::kQuote:
      return state_ != State::kBraced;
    case MarkRole::kFence:
      return state_ != State::kNameLine && state_ != State::kAfter &&
             !(state_ == State::kArguments && !arguments_->is_in_string());
    default:
      return true;
  }
}

void CallMachine::read_mark(const Item& item) {
  if (writer_.is_closed()) return;
  if (is_text_here(*item.mark)) return read_text(item, false);
  switch (item.mark->role) {
    case MarkRole::kSectionOpen:
    case MarkRole::kCallOpen:
      return open(item);
    case MarkRole::kTagOpen:
      return open_tag(item);
    case MarkRole::kSectionClose:
    case MarkRole::kCallClose:
      return close(item);
    case MarkRole::kTagClose:
      if (state_ != State::kAfter) end_arguments(false, item.begin);
      if (!has_role(MarkRole::kCallClose)) give_end(false, item.end);
      return;
    case MarkRole::kSeparator:
      return separator(item);
    case MarkRole::kIdOpen:
      is_reading_id_ = true;
      has_inner_space_ = false;
      return;
    case MarkRole::kKeyOpen:
      return open_key(item);
    case MarkRole::kKeyClose:
      state_ = State::kBeforeValue;
      return;
    case MarkRole::kValueOpen:
      parameters_.begin_value(name_, item.end);
      state_ = State::kValue;
      return;
    case MarkRole::kValueClose:
      if (state_ == State::kValue) parameters_.end_value(item.end);
      state_ = State::kParameters;
      return;
    case MarkRole::kQuote:
      braced_->quote();
      writer_.arguments(braced_->take(), {item.begin, item.end});
      return;
    case MarkRole::kFence:
      return fence(item);
    default:
      return;
  }
}

/// A mark that opens calls or one call.
void CallMachine::open(const Item& item) {
  const bool is_call = item.mark->role == MarkRole::kCallOpen;
  if (is_in_call()) {
    end_call(false, item.begin);
  } else if ((state_ == State::kSection && !is_call) ||
             (state_ == State::kBody && is_call && !is_list_)) {
    return;  // opened twice is opened once
  } else if (is_pending() && state_ != State::kSection) {
    finish_pending(false, item.begin);
  }
  if (writer_.is_closed()) return;
  if (!writer_.may_begin_call()) return plain(lexer_.text(item), item.begin);
  if (state_ != State::kSection) block_ = item.begin;
  is_bare_ = is_list_ = is_tagged_ = false;
  state_ = is_call ? State::kBody : State::kSection;
  if (is_call) {
    expects_call_close_ = has_role(MarkRole::kCallClose);
  } else {
    expects_section_close_ = true;
    section_ = item.begin;
  }
}

void CallMachine::open_tag(const Item& item) {
  if (is_in_call()) {
    end_call(false, item.begin);
  } else if (state_ == State::kUnreadable || state_ == State::kTag) {
    give_up(item.begin);
  }
  if (writer_.is_closed()) return;
  if (state_ == State::kContent) {
    // Without marks around it a tag counts at the beginning of a line, where it names a tool.
    const bool is_around = expects_call_close_ || expects_section_close_;
    const bool may_be_alone = item.is_sampled || !format_.inner_tokens.empty();
    if (!writer_.may_begin_call() || !(is_around || may_be_alone || is_line_begin_))
      return plain(lexer_.text(item), item.begin);
    block_ = item.begin;
    is_bare_ = !is_around && !may_be_alone;
  }
  name_.clear();
  id_.clear();
  state_ = State::kTag;
}

/// A mark that closes calls or one call.
void CallMachine::close(const Item& item) {
  if (is_in_call()) {
    end_call(false, item.end);
  } else if (is_pending()) {
    finish_pending(false, item.end);
  }
  expects_call_close_ = false;
  if (item.mark->role == MarkRole::kSectionClose) expects_section_close_ = false;
}

void CallMachine::separator(const Item& item) {
  // DeepSeek V3 writes the kind of the call in front of the separator, and the name after it.
  if (name_ == "function" && has_role(MarkRole::kFence)) {
    name_.clear();
    has_inner_space_ = false;
    state_ = State::kNameLine;
    return;
  }
  begin_named(item.end);
}

void CallMachine::fence(const Item& item) {
  if (state_ == State::kNameLine) {
    begin_named(item.begin);
  } else if (state_ == State::kArguments && arguments_->is_begun()) {
    end_arguments(false, item.begin);
  }
}

void CallMachine::open_key(const Item& item) {
  if (state_ == State::kLineName && !begin_named(item.begin)) return;
  if (state_ == State::kValue) parameters_.end_value(item.begin);
  name_.clear();
  may_be_json_ = false;
  state_ = has_role(MarkRole::kKeyClose) ? State::kKey : State::kKeyTag;
}

/// What encloses a call, or the output, ends where the call's name is not complete.
void CallMachine::finish_pending(bool is_cut, uint64_t at) {
  const bool is_line = state_ == State::kLineName || state_ == State::kNameLine;
  if (is_line && !is_cut && !name_.empty() && begin_named(at)) return end_call(false, at);
  if (state_ == State::kPython && (is_cut || python_->is_between_calls()) &&
      write_python(is_cut, at))
    return;
  if (!is_cut || writer_.is_content_reasoning() || !is_cut_off_call()) return give_up(at);
  writer_.drop_space();
  state_ = State::kContent;
}

/// Whether an output that was cut off here would have become a call: without a mark that says so,
/// if it begins like one of a tool that there is.
bool CallMachine::is_cut_off_call() const {
  if (!is_bare_) return true;
  if (state_ == State::kObject)
    return object_->looks_like_call() && tools_.has_prefix(object_->name_so_far());
  if (state_ == State::kPython)
    return python_->is_in_name() && tools_.has_prefix(python_->partial_name());
  return tools_.has_prefix(name_);
}

void CallMachine::finish(OutputEnd end, uint64_t at) {
  const bool is_cut = end == OutputEnd::kCut;
  if (writer_.is_closed()) return;
  if (is_cut && state_ == State::kObject && tools_.has(object_->name()) &&
      object_->looks_like_call())
    object_->expect_arguments();
  if (is_in_call()) {
    end_call(is_cut, at);
  } else if (is_pending()) {
    finish_pending(is_cut, at);
  }
}

}  // namespace slime::text
