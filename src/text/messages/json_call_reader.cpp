#include "text/messages/json_call_reader.h"

#include <algorithm>
#include <array>

#include "text/messages/white_space.h"

namespace slime::text {
namespace {

bool is_arguments_key(std::string_view key) { return key == "arguments" || key == "parameters"; }

}  // namespace

std::size_t JsonCallReader::read(std::string_view text, uint64_t at, MessageWriter& writer) {
  std::size_t taken = 0;
  while (taken < text.size() && status_ == Status::kMore) {
    if (step(text[taken], at + taken, writer)) ++taken;
  }
  flush_arguments(at + taken, writer);  // once a run, not once a byte
  if (status_ == Status::kWhole) end(false, at + taken, writer);
  return taken;
}

bool JsonCallReader::step(char byte, uint64_t at, MessageWriter& writer) {
  switch (state_) {
    case State::kKeyText:
    case State::kName:
    case State::kId:
    case State::kArgumentsText:
      return text_step(byte, at, writer);
    case State::kArguments: {
      const auto step = arguments_.step(byte);
      if (step != JsonScanner::Step::kInside) state_ = State::kNext;
      return step != JsonScanner::Step::kBefore;
    }
    case State::kRaw:
      arguments_.add_text(byte);
      return true;
    case State::kSkip: {
      const auto step = skipped_->step(byte);
      if (step != JsonScanner::Step::kInside) state_ = State::kNext;
      return step != JsonScanner::Step::kBefore;
    }
    default:
      break;
  }
  if (is_white_space(byte)) return true;
  switch (state_) {
    case State::kOpen:
      if (byte != '{') return refuse(byte);
      state_ = State::kFirstKey;
      return true;
    case State::kFirstKey:
    case State::kKey:
      if (byte == '"') {
        state_ = State::kKeyText;
        token_.clear();
        return true;
      }
      if (byte != '}' || state_ != State::kFirstKey) return refuse(byte);
      status_ = is_call() ? Status::kWhole : Status::kNoCall;
      return true;
    case State::kColon:
      if (byte != ':') return refuse(byte);
      state_ = State::kValue;
      return true;
    case State::kValue:
      return begin_value(byte, at, writer);
    default:
      if (byte == ',') {
        state_ = State::kKey;
        return true;
      }
      if (byte != '}') return refuse(byte);
      status_ = is_call() ? Status::kWhole : Status::kNoCall;
      return true;
  }
}

bool JsonCallReader::begin_value(char byte, uint64_t at, MessageWriter& writer) {
  if (key_ == "name" && name_.empty()) {
    if (byte != '"') return refuse(byte);
    state_ = State::kName;
    token_.clear();
    return true;
  }
  if (is_arguments_key(key_) && !has_arguments_) {
    has_arguments_ = true;
    if (!name_.empty()) begin_call(at, writer);
    sent_ = at;
    has_json_arguments_ = false;
    if (byte == '"') {
      state_ = State::kArgumentsText;
      token_.clear();
      return true;
    }
    state_ = State::kArguments;
    return step(byte, at, writer);
  }
  if (key_ == "id" && has_id_ && id_.empty() && byte == '"') {
    state_ = State::kId;
    token_.clear();
    return true;
  }
  skipped_.emplace();
  state_ = State::kSkip;
  return step(byte, at, writer);
}

bool JsonCallReader::text_step(char byte, uint64_t at, MessageWriter& writer) {
  if (is_escape_) {
    is_escape_ = false;
  } else if (byte == '"') {
    end_text(at + 1, writer);
    return true;
  } else if (byte == '\\') {
    is_escape_ = true;
  }
  token_ += byte;
  if (state_ != State::kArgumentsText && token_.size() > kMostNameBytes) return refuse(byte);
  return true;
}

void JsonCallReader::end_text(uint64_t at, MessageWriter& writer) {
  if (state_ == State::kArgumentsText) {
    state_ = State::kNext;
    decode_arguments("\"", false, at, writer);
    return;
  }
  bool is_valid = false;
  std::string text = decode_json_string(token_, is_valid);
  if (state_ == State::kKeyText) {
    key_ = std::move(text);
    if (key_ != "name" && key_ != "type" && key_ != "id" && !is_arguments_key(key_))
      has_other_keys_ = true;
    state_ = State::kColon;
    return;
  }
  const bool is_name = state_ == State::kName;
  state_ = State::kNext;
  if (!is_name) {
    id_ = std::move(text);
  } else if (!is_valid || text.empty()) {
    refuse('"');
  } else {
    name_ = std::move(text);
    if (!needs_arguments_ || has_arguments_) begin_call(at, writer);
  }
}

/// The object is no JSON from here on. What follows a name are arguments as they are written.
bool JsonCallReader::refuse(char byte) {
  if (!is_call()) {
    status_ = Status::kNoCall;
    return true;
  }
  if (has_arguments_) {
    status_ = Status::kWhole;
    return false;
  }
  has_arguments_ = true;
  has_json_arguments_ = false;
  state_ = State::kRaw;
  arguments_.add_text(byte);
  return true;
}

bool JsonCallReader::is_in_string() const {
  switch (state_) {
    case State::kKeyText:
    case State::kName:
    case State::kId:
    case State::kArgumentsText:
      return true;
    case State::kArguments:
      return arguments_.is_in_string();
    case State::kSkip:
      return skipped_->is_in_string();
    default:
      return false;
  }
}

bool JsonCallReader::looks_like_call() const {
  if (has_other_keys_) return false;
  if (state_ != State::kKeyText) return true;
  constexpr auto kKeys =
      std::to_array<std::string_view>({"name", "type", "id", "arguments", "parameters"});
  return std::ranges::any_of(kKeys,
                             [this](std::string_view key) { return key.starts_with(token_); });
}

void JsonCallReader::close(bool is_cut, uint64_t at, MessageWriter& writer) {
  if (status_ == Status::kWhole) return;
  status_ = Status::kWhole;
  end(is_cut, at, writer);
}

void JsonCallReader::end(bool is_cut, uint64_t at, MessageWriter& writer) {
  if (state_ == State::kArgumentsText) decode_arguments("", is_cut, at, writer);
  flush_arguments(at, writer);
  begin_call(at, writer);
  if (!has_arguments_ && !is_cut) add_arguments("{}", at, writer);
}

void JsonCallReader::begin_call(uint64_t at, MessageWriter& writer) {
  if (is_begun_ || (has_id_ && status_ == Status::kMore)) return;
  is_begun_ = true;
  writer.begin_call(name_, id_, {begin_, at});
  sent_ = at;
  if (!held_.empty()) writer.arguments(held_, {begin_, at});
  held_.clear();
}

/// null, which means {}, waits until it is whole.
void JsonCallReader::flush_arguments(uint64_t at, MessageWriter& writer) {
  const bool is_whole = state_ != State::kArguments || status_ == Status::kWhole;
  if (!arguments_.is_begun() || (arguments_.first() == 'n' && !is_whole)) return;
  const std::string text = arguments_.take();
  if (text.empty()) return;
  has_json_arguments_ = arguments_.is_null() || arguments_.is_object();
  add_arguments(arguments_.is_null() ? "{}" : text, at, writer);
}

void JsonCallReader::add_arguments(std::string_view text, uint64_t at, MessageWriter& writer) {
  if (!is_begun_) {
    held_ += text;
    return;
  }
  writer.arguments(text, {sent_, at});
  sent_ = at;
}

/// Arguments in a JSON string: what it holds, where that is an object.
void JsonCallReader::decode_arguments(std::string_view end_quote, bool is_cut, uint64_t at,
                                      MessageWriter& writer) {
  bool is_valid = false;
  const std::string decoded = decode_json_string(token_, is_valid);
  const std::string_view object = without_white_space_around(decoded);
  const bool is_object = is_valid && json_types_of(object) == JsonTypes::kObject;
  if (is_object || (is_cut && is_valid && object.starts_with('{'))) {
    has_json_arguments_ = is_object;
    add_arguments(object, at, writer);
  } else {
    add_arguments("\"" + token_ + std::string(end_quote), at, writer);
  }
}

}  // namespace slime::text
