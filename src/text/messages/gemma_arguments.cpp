#include "text/messages/gemma_arguments.h"

#include "text/messages/json_arguments.h"
#include "text/messages/tool_schemas.h"
#include "text/messages/white_space.h"

namespace slime::text {
std::size_t GemmaArguments::read(std::string_view text) {
  if (state_ == State::kString) {
    append_json_escaped(text, json_);
    return text.size();
  }
  std::size_t taken = 0;
  while (taken < text.size() && state_ != State::kDone) step(text[taken++]);
  return taken;
}

void GemmaArguments::quote() {
  switch (state_) {
    case State::kKey:
      if (word_.empty()) {
        state_ = State::kQuotedKey;
        return;
      }
      break;
    case State::kQuotedKey:
      state_ = State::kColon;
      return;
    case State::kValue:
      json_ += '"';
      state_ = State::kString;
      return;
    case State::kString:
      json_ += '"';
      state_ = State::kNext;
      return;
    default:
      break;
  }
  is_valid_ = false;
}

void GemmaArguments::step(char byte) {
  switch (state_) {
    case State::kOpen:
      objects_[depth_++] = true;
      json_ += '{';
      state_ = State::kKey;
      return;
    case State::kKey:
      if (word_.empty() && (is_white_space(byte) || byte == ',')) return;
      if (byte == '}' && word_.empty()) return close();
      if (byte != ':') {
        if (word_.size() < kMostNesting) word_ += byte;
        return;
      }
      [[fallthrough]];
    case State::kColon:
      if (byte != ':') {
        is_valid_ &= is_white_space(byte);
        return;
      }
      if (needs_comma_) json_ += ", ";
      needs_comma_ = true;
      json_ += '"';
      append_json_escaped(without_trailing_white_space(word_), json_);
      json_ += "\": ";
      word_.clear();
      state_ = State::kValue;
      return;
    case State::kQuotedKey:
      word_ += byte;
      return;
    case State::kValue:
      if (!is_white_space(byte)) begin_value(byte);
      return;
    case State::kWord:
      if (byte != ',' && byte != '}' && byte != ']') {
        word_ += byte;
        return;
      }
      end_word();
      [[fallthrough]];
    case State::kNext:
      if (byte == ',') {
        state_ = is_object() ? State::kKey : State::kValue;
        if (!is_object()) json_ += ", ";
      } else if (byte == '}' || byte == ']') {
        close();
      } else {
        is_valid_ &= is_white_space(byte);
      }
      return;
    case State::kString:
    case State::kDone:
      return;
  }
}

void GemmaArguments::begin_value(char byte) {
  if (byte == '{' || byte == '[') {
    if (depth_ == kMostNesting) {
      is_valid_ = false;
      return;
    }
    objects_[depth_++] = byte == '{';
    json_ += byte;
    needs_comma_ = false;
    state_ = byte == '{' ? State::kKey : State::kValue;
  } else if (byte == ']' || byte == '}') {
    close();
  } else {
    word_ = byte;
    state_ = State::kWord;
  }
}

void GemmaArguments::end_word() {
  json_ += parameter_json(without_trailing_white_space(word_), 0xff & ~JsonTypes::kString);
  word_.clear();
}

void GemmaArguments::close() {
  json_ += is_object() ? '}' : ']';
  --depth_;
  needs_comma_ = true;
  state_ = depth_ == 0 ? State::kDone : State::kNext;
}

}  // namespace slime::text
