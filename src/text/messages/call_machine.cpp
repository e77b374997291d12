#include "text/messages/call_machine.h"

#include <algorithm>
#include <utility>

#include "text/messages/white_space.h"

/// Text in each state; marks are read in call_machine_marks.cpp.

namespace slime::text {
namespace {

/// Bytes of a name that stands between marks. Prose and JSON are no names.
bool is_call_name_byte(char byte) {
  constexpr std::string_view kOthers = "<>{}[]()\"'`,;=";
  return static_cast<unsigned char>(byte) > 0x20 && kOthers.find(byte) == std::string_view::npos;
}

/// "functions.get_weather:0" of Kimi K2 to "get_weather".
std::string_view kimi_name(std::string_view id, bool& has_number) {
  if (id.starts_with("functions.")) id.remove_prefix(10);
  const auto colon = id.rfind(':');
  has_number = colon != std::string_view::npos && colon + 1 < id.size() &&
               id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return has_number ? id.substr(0, colon) : id;
}

}  // namespace

CallMachine::CallMachine(const CallFormat& format, const ToolSchemas& tools, const MarkLexer& lexer,
                         MessageWriter& writer)
    : format_(format),
      tools_(tools),
      lexer_(lexer),
      writer_(writer),
      parameters_(tools, writer, format.has_newlines_around_values) {}

bool CallMachine::has_role(MarkRole role) const {
  return std::ranges::any_of(format_.marks, [role](const Mark& mark) { return mark.role == role; });
}

void CallMachine::read_text(const Item& item, bool is_tail) {
  std::string_view text = lexer_.text(item);
  if (writer_.is_closed()) return;
  if (is_tail && (is_in_call() || expects_call_close_ || expects_section_close_)) {
    // A closing mark that was cut off is no text, but where text may stand.
    const bool is_close = std::ranges::any_of(format_.marks, [text](const Mark& mark) {
      const bool closes = mark.role == MarkRole::kCallClose ||
                          mark.role == MarkRole::kSectionClose || mark.role == MarkRole::kTagClose;
      return closes && mark.spelling.starts_with(text);
    });
    const bool is_between =
        state_ == State::kContent || state_ == State::kAfter || state_ == State::kParameters;
    if (is_close && is_between) return;
  }
  uint64_t at = item.begin;
  while (!text.empty() && !writer_.is_closed()) {
    const std::size_t taken = step(text, at);
    text.remove_prefix(taken);
    at += taken;
  }
}

/// Reads the beginning of a text: some bytes, or none after a change of state.
std::size_t CallMachine::step(std::string_view text, uint64_t at) {
  switch (state_) {
    case State::kContent:
      return content(text, at);
    case State::kSection: {
      const std::size_t spaces = leading_white_space(text);
      if (spaces == text.size()) return spaces;
      // Only JSON needs no mark of its own.
      if (format_.reads_json && (text[spaces] == '{' || text[spaces] == '[')) {
        state_ = State::kBody;
      } else {
        unreadable(at + spaces);
      }
      return spaces;
    }
    case State::kBody:
      return body(text, at);
    case State::kHeader:
    case State::kNameLine:
    case State::kLineName:
    case State::kBracedName:
      return name(text, at);
    case State::kTag:
    case State::kKeyTag:
      return tag(text, at);
    case State::kKey: {
      const std::size_t taken =
          std::min(text.size(), kMostNameBytes - std::min(name_.size(), kMostNameBytes));
      name_ += text.substr(0, taken);
      return text.size();
    }
    case State::kObject:
      return object(text, at);
    case State::kPython:
      return python(text, at);
    case State::kParameters: {
      const std::size_t spaces = leading_white_space(text);
      if (spaces == text.size()) return spaces;
      if (text[spaces] != '{' || !may_be_json_) {
        may_be_json_ = false;
        return text.size();
      }
      arguments_.emplace();
      state_ = State::kArguments;
      return spaces;
    }
    case State::kValue:
      parameters_.value(text, at);
      return text.size();
    case State::kArguments:
      return arguments(text, at);
    case State::kBraced:
      return braced(text, at);
    case State::kAfter:
      return after(text, at);
    case State::kUnreadable:
    case State::kBeforeValue:
      return text.size();
  }
  return text.size();
}

/// Content, of which nothing begins a call.
void CallMachine::plain(std::string_view text, uint64_t at) {
  if (text.empty()) return;
  writer_.content(text, {at, at + text.size()});
  const auto newline = text.rfind('\n');
  const bool has_newline = newline != std::string_view::npos;
  const auto line = has_newline ? text.substr(newline + 1) : text;
  is_line_begin_ = (has_newline || is_line_begin_) && leading_white_space(line) == line.size();
  is_bare_due_ &= leading_white_space(text) == text.size();
}

std::size_t CallMachine::content(std::string_view text, uint64_t at) {
  if (!writer_.may_begin_call()) {
    plain(text, at);
    return text.size();
  }
  std::size_t begin = text.size();
  if (format_.reads_bare_json && is_bare_due_) {
    const std::size_t spaces = leading_white_space(text);
    if (spaces < text.size() && text[spaces] == '{') begin = spaces;
  } else if (format_.reads_bare_python) {
    bool is_line_begin = is_line_begin_;
    for (std::size_t i = 0; i < text.size() && begin == text.size(); ++i) {
      if (text[i] == '[' && is_line_begin) begin = i;
      is_line_begin = text[i] == '\n' || (is_line_begin && is_white_space(text[i]));
    }
  }
  plain(text.substr(0, begin), at);
  if (begin == text.size()) return begin;
  is_bare_ = true;
  if (format_.reads_bare_json) {
    open_object(at + begin);
  } else {
    block_ = at + begin;
    python_.emplace(PythonCalls::Form::kList, block_);
    state_ = State::kPython;
  }
  return begin;
}

/// The first text behind a call's opening mark.
std::size_t CallMachine::body(std::string_view text, uint64_t at) {
  const std::size_t spaces = leading_white_space(text);
  if (spaces == text.size()) return spaces;
  if (format_.reads_json && text[spaces] == '[' && !is_list_) {
    is_list_ = true;
    return spaces + 1;
  }
  if (format_.reads_json && text[spaces] == '{') {
    open_object(block_);
    return spaces;
  }
  if (format_.header == CallHeader::kPython) {
    python_.emplace(PythonCalls::Form::kBlock, at + spaces - (is_list_ ? 1 : 0));
    if (is_list_) python_->read("[");  // it is no list of objects
    state_ = State::kPython;
    return spaces;
  }
  name_.clear();
  id_.clear();
  is_reading_id_ = has_inner_space_ = false;
  if (is_list_ || format_.header == CallHeader::kNone) {
    unreadable(at + spaces);
  } else {
    state_ = format_.header == CallHeader::kSeparated ? State::kHeader
             : format_.header == CallHeader::kLine    ? State::kLineName
                                                      : State::kBracedName;
  }
  return spaces;
}

/// Names and ids that end with a mark, a newline or a brace.
std::size_t CallMachine::name(std::string_view text, uint64_t at) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    std::string& word = is_reading_id_ ? id_ : name_;
    // DeepSeek V3.1 has the name in front of the separator.
    if (byte == '{' && state_ == State::kNameLine && word.empty()) word = "function";
    const bool ends_line =
        byte == '\n' && (state_ == State::kNameLine || state_ == State::kLineName);
    if ((byte == '{' || ends_line) && !word.empty()) {
      begin_named(at + i);
      return i;
    }
    if (is_white_space(byte)) {
      has_inner_space_ |= !word.empty();
      continue;
    }
    if (!is_call_name_byte(byte) || has_inner_space_ || word.size() == kMostNameBytes) {
      unreadable(at + i);
      return i;
    }
    word += byte;
  }
  return text.size();
}

/// The name is complete: arguments follow. False where it is none.
bool CallMachine::begin_named(uint64_t at) {
  switch (state_) {
    case State::kLineName:
      return begin_call(at, State::kParameters);
    case State::kBracedName:
      if (name_.starts_with("call:")) name_.erase(0, 5);
      if (!begin_call(at, State::kBraced)) return false;
      braced_.emplace();
      return true;
    default:
      if (format_.ids == CallIds::kKimi) {
        bool has_number = false;
        std::string name(kimi_name(name_, has_number));
        if (has_number) id_ = name_;  // else it is no id: two calls would have the same
        name_ = std::move(name);
      }
      if (!begin_call(at, State::kArguments)) return false;
      arguments_.emplace();
      return true;
  }
}

bool CallMachine::begin_call(uint64_t at, State next) {
  name_ = without_white_space_around(name_);
  if (name_.empty()) {
    unreadable(at);
    return false;
  }
  writer_.begin_call(name_, id_, {block_, at});
  arguments_end_ = at;
  parameters_.begin_call(name_);
  state_ = next;
  id_.clear();
  may_be_json_ = true;
  return true;
}

/// Text of a tag behind its "=", up to ">".
std::size_t CallMachine::tag(std::string_view text, uint64_t at) {
  const bool is_name_tag = state_ == State::kTag;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char quote = name_.empty() ? 0 : name_.front();
    const bool is_quoted =
        (quote == '"' || quote == '\'') && name_.find(quote, 1) == std::string::npos;
    if (text[i] != '>' || is_quoted) {
      const bool is_bad = is_name_tag && (text[i] == '\n' || text[i] == '<');
      if (!is_bad && name_.size() < kMostNameBytes) {
        name_ += text[i];
      } else if (is_name_tag) {
        unreadable(at + i);
        return i;
      } else {
        state_ = State::kParameters;
        return i;
      }
      continue;
    }
    if (!is_name_tag) {
      parameters_.begin_value_of_tag(name_, at + i + 1);
      state_ = State::kValue;
      return i + 1;
    }
    name_ = tag_value(name_);
    if (is_bare_ && !tools_.has(name_)) {
      unreadable(at + i);
      return i;
    }
    is_tagged_ = true;
    begin_call(at + i + 1, State::kParameters);
    return i + 1;
  }
  return text.size();
}

void CallMachine::open_object(uint64_t at) {
  block_ = at;
  object_.emplace(at, is_bare_ || format_.reads_bare_json, format_.has_id_in_object);
  state_ = State::kObject;
}

std::size_t CallMachine::object(std::string_view text, uint64_t at) {
  const std::size_t taken = object_->read(text, at, writer_);
  if (object_->status() == JsonCallReader::Status::kNoCall) {
    unreadable(at + taken);
  } else if (object_->status() == JsonCallReader::Status::kWhole) {
    is_last_json_ = object_->has_json_arguments();
    end_arguments(false, at + taken);
  }
  return taken;
}

std::size_t CallMachine::arguments(std::string_view text, uint64_t at) {
  const std::size_t taken = arguments_->read(text);
  writer_.arguments(arguments_->take(), {std::min(arguments_end_, at), at + taken});
  if (arguments_->is_whole()) end_arguments(false, at + taken);
  return taken;
}

std::size_t CallMachine::braced(std::string_view text, uint64_t at) {
  const std::size_t taken = braced_->read(text);
  writer_.arguments(braced_->take(), {at, at + taken});
  if (braced_->is_whole()) end_arguments(false, at + taken);
  return taken;
}

std::size_t CallMachine::python(std::string_view text, uint64_t at) {
  const std::size_t taken = python_->read(text);
  if (python_->status() == PythonCalls::Status::kRefused) {
    // A list of objects is what a grammar for forced calls lets the model write.
    if (is_bare_ && is_bare_due_ && python_->is_at_first_call() && text[taken] == '{') {
      is_list_ = true;
      open_object(block_);
      return taken;
    }
    unreadable(at + taken);
  } else if (python_->status() == PythonCalls::Status::kWhole && !write_python(false, at + taken)) {
    unreadable(at + taken);
  }
  return taken;
}

/// Gives out the calls of a list or block. False where they are too many, or there is none.
bool CallMachine::write_python(bool is_cut, uint64_t at) {
  const auto& calls = python_->calls();
  const auto num_calls = static_cast<std::size_t>(writer_.num_calls()) + calls.size();
  if (calls.empty() || num_calls > static_cast<std::size_t>(kMostCalls)) return false;
  uint64_t begin = block_;
  for (const PythonCalls::Call& call : calls) {
    const uint64_t end = call.is_whole ? call.end : at;
    writer_.begin_call(call.name, {}, {begin, call.begin + call.name.size()});
    writer_.arguments(call.arguments, {call.begin + call.name.size(), end});
    writer_.end_call(is_cut || call.is_whole, {end - 1, &call == &calls.back() ? at : end});
    begin = end;
  }
  state_ = State::kContent;
  is_line_begin_ = true;
  is_bare_ = false;
  return true;
}

/// A call's arguments have ended; its closing mark, another call or text may follow.
std::size_t CallMachine::after(std::string_view text, uint64_t at) {
  constexpr std::string_view kLeftOver = "}],;";  // of JSON
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_white_space(text[i])) continue;
    if (!is_tagged_ && kLeftOver.find(text[i]) != std::string_view::npos) continue;
    const bool is_object = text[i] == '{' && object_;
    const bool was_bare = is_bare_;
    end_call(false, at + i);
    if (is_object && writer_.may_begin_call()) {
      is_bare_ = was_bare;
      open_object(at + i);
    }
    return i;
  }
  return text.size();
}

/// What began is no call that can be read. Where a mark may still close it, it goes on until then.
void CallMachine::unreadable(uint64_t at) {
  if (!is_bare_ && (has_role(MarkRole::kCallClose) || has_role(MarkRole::kSectionClose))) {
    state_ = State::kUnreadable;
  } else {
    give_up(at);
  }
}

/// The output from where the call began up to `end` is content.
void CallMachine::give_up(uint64_t end) {
  if (!is_bare_ && !writer_.is_content_reasoning()) writer_.count_unreadable();
  state_ = State::kContent;
  expects_section_close_ &= block_ != section_;  // it is content with the rest
  plain(lexer_.text(block_, end), block_);
  is_bare_ = false;
}

void CallMachine::end_arguments(bool is_cut, uint64_t at) {
  switch (state_) {
    case State::kObject:
      object_->close(is_cut, at, writer_);
      is_last_json_ = object_->has_json_arguments();
      break;
    case State::kValue:
      if (!is_cut) parameters_.end_value(at);
      [[fallthrough]];
    case State::kParameters:
    case State::kKey:
    case State::kKeyTag:
    case State::kBeforeValue:
      if (!is_cut) parameters_.end_call(at);
      is_last_json_ = true;
      break;
    case State::kArguments:
      writer_.arguments(arguments_->take(), {std::min(arguments_end_, at - 1), at});
      is_last_json_ = arguments_->is_object() || !arguments_->is_begun();
      if (!arguments_->is_begun() && !is_cut) writer_.arguments("{}", {at - 1, at});
      break;
    case State::kBraced:
      writer_.arguments(braced_->take(), {at - 1, at});
      is_last_json_ = braced_->is_whole() && braced_->is_valid();
      break;
    default:
      return;
  }
  if (state_ != State::kObject) object_.reset();
  arguments_end_ = at;
  state_ = State::kAfter;
  is_end_due_ = true;
  // Without a mark that could follow, the call is over.
  if (is_bare_ || !(has_role(MarkRole::kCallClose) || is_tagged_)) give_end(is_cut, at);
}

void CallMachine::give_end(bool is_cut, uint64_t at) {
  if (std::exchange(is_end_due_, false))
    writer_.end_call(is_last_json_ || is_cut, {arguments_end_ - 1, at});
}

void CallMachine::end_call(bool is_cut, uint64_t at) {
  if (state_ != State::kAfter) end_arguments(is_cut, at);
  give_end(is_cut, at);
  state_ = State::kContent;
  is_line_begin_ = true;
  is_bare_due_ = is_bare_ = is_tagged_ = is_list_ = false;
}

}  // namespace slime::text
