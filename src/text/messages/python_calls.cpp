#include "text/messages/python_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "text/messages/json_arguments.h"
#include "text/messages/message_writer.h"
#include "text/messages/white_space.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

bool is_python_digit(char byte) { return byte >= '0' && byte <= '9'; }
/// Letters of other scripts count: Python's names may have them.
bool begins_python_name(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
         static_cast<unsigned char>(byte) >= 0x80;
}
bool is_in_python_name(char byte) { return begins_python_name(byte) || is_python_digit(byte); }

int hex_digit_value(char byte) {
  if (is_python_digit(byte)) return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

/// A code point as UTF-8, half of a pair as an escape of JSON.
void append_code(uint32_t code, std::string& json) {
  if (code >= 0xd800 && code < 0xe000) {
    fmt::format_to(std::back_inserter(json), "\\u{:04x}", code);
    return;
  }
  std::string text;
  append_utf8(code, text);
  append_json_escaped(text, json);
}

/// A number of Python as JSON; nothing for what is none.
std::optional<std::string> number_json(std::string word) {
  std::erase(word, '_');
  std::string_view digits = word;
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.remove_prefix(1);
  std::string json;
  const int base = digits.size() < 3 || digits[0] != '0'  ? 10
                   : digits[1] == 'x' || digits[1] == 'X' ? 16
                   : digits[1] == 'o' || digits[1] == 'O' ? 8
                   : digits[1] == 'b' || digits[1] == 'B' ? 2
                                                          : 10;
  if (base != 10) {
    uint64_t value = 0;
    const char* end = digits.data() + digits.size();
    if (std::from_chars(digits.data() + 2, end, value, base).ptr != end) return std::nullopt;
    json = std::to_string(value);
  } else {
    json = digits;
    if (json.starts_with('.')) json.insert(0, "0");
    const auto point = json.find('.');
    if (point != std::string::npos &&
        (point + 1 == json.size() || !is_python_digit(json[point + 1])))
      json.insert(point + 1, "0");
  }
  if (is_negative) json.insert(0, "-");
  if ((json_types_of(json) & JsonTypes::kNumber) == 0) return std::nullopt;
  return json;
}

std::optional<std::string> word_json(const std::string& word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  return number_json(word);
}

}  // namespace

std::size_t PythonCalls::read(std::string_view text) {
  std::size_t taken = 0;
  while (taken < text.size() && status_ == Status::kMore) {
    if (!step(text[taken])) continue;
    ++taken;
    ++at_;
  }
  return taken;
}

bool PythonCalls::is_between_calls() const {
  const bool is_outside =
      state_ == State::kCall || state_ == State::kAfterCall || state_ == State::kComment;
  return is_outside && !calls_.empty();
}

bool PythonCalls::go(State next, bool is_taken) {
  state_ = next;
  return is_taken;
}

bool PythonCalls::refuse() {
  status_ = Status::kRefused;
  return false;
}

bool PythonCalls::step(char byte) {
  switch (state_) {
    case State::kOpen:
      if (byte != '[') return refuse();
      is_list_ = true;
      return go(State::kCall);
    case State::kCall:
    case State::kName:
    case State::kAfterName:
      return call_step(byte);
    case State::kKeyword:
    case State::kInKeyword:
    case State::kAfterKeyword:
      return keyword_step(byte);
    case State::kValue:
      return value_step(byte);
    case State::kWord:
      return word_step(byte);
    case State::kTwoQuotes:
      if (byte != quote_) return end_string() && false;
      num_quotes_ = 3;
      return go(State::kString);
    case State::kString:
      return string_step(byte);
    case State::kEscape:
      return escape_step(byte);
    case State::kCode:
      return code_step(byte);
    case State::kAfterKey:
      if (is_white_space(byte)) return true;
      if (byte != ':') return refuse();
      open_.back() = ':';
      json() += ": ";
      return go(State::kValue);
    case State::kAfterValue:
      return after_value(byte);
    case State::kAfterCall:
    case State::kEndOfPrint:
      return after_call(byte);
    case State::kComment:
      return byte == '\n' ? go(State::kCall) : true;
  }
  return refuse();
}

bool PythonCalls::call_step(char byte) {
  if (state_ == State::kCall) {
    if (is_white_space(byte)) return true;
    if (begins_python_name(byte)) {
      word_ = byte;
      return go(State::kName);
    }
    if (byte == ']' && is_list_ && !calls_.empty()) return after_call(byte);
    if (form_ == Form::kList) return refuse();
    if (byte == '[' && !is_list_) {
      is_list_ = true;
      return true;
    }
    if (byte == '#') return go(State::kComment);
    return byte == ';' ? true : refuse();
  }
  if (byte == '(') return begin_call();
  if (byte == ' ') return go(State::kAfterName);
  if (state_ == State::kAfterName || !(is_in_python_name(byte) || byte == '.') ||
      word_.size() == kMostNameBytes)
    return refuse();
  word_ += byte;
  return true;
}

bool PythonCalls::begin_call() {
  if (calls_.size() == static_cast<std::size_t>(kMostCalls)) return refuse();
  calls_.push_back({.name = std::move(word_), .arguments = {}, .begin = at_, .end = at_});
  calls_.back().begin -= calls_.back().name.size();
  word_.clear();
  return go(State::kKeyword);
}

bool PythonCalls::keyword_step(char byte) {
  if (state_ == State::kKeyword) {
    if (is_white_space(byte)) return true;
    if (byte == ')') return end_call(is_print_ ? State::kEndOfPrint : State::kAfterCall);
    if (!begins_python_name(byte)) return refuse();
    word_ = byte;
    return go(State::kInKeyword);
  }
  if (byte == '=') {
    json() += json().empty() ? "{\"" : ", \"";
    append_json_escaped(word_, json());
    json() += "\": ";
    return go(State::kValue);
  }
  Call& call = calls_.back();
  if (byte == '(' && form_ == Form::kBlock && call.name == "print" && call.arguments.empty() &&
      !is_print_) {
    is_print_ = true;
    call.name = word_;
    return go(State::kKeyword);
  }
  if (byte == ' ') return go(State::kAfterKeyword);
  const bool is_more = is_in_python_name(byte) || (byte == '.' && call.name == "print");
  if (state_ == State::kAfterKeyword || !is_more || word_.size() == kMostNameBytes) return refuse();
  word_ += byte;
  return true;
}

bool PythonCalls::value_step(char byte) {
  if (is_white_space(byte)) return true;
  if ((byte == ']' && open_.ends_with('[')) || (byte == '}' && is_key_due())) return close(byte);
  const bool is_quote = byte == '\'' || byte == '"';
  if (is_key_due() && !is_quote) return refuse();
  if (needs_comma_) json() += ", ";
  needs_comma_ = false;
  if (is_quote) {
    quote_ = byte;
    num_quotes_ = 1;
    num_end_quotes_ = 0;
    json() += '"';
    word_.clear();
    return go(State::kString);
  }
  if (byte == '[' || byte == '{') {
    if (open_.size() == kMostNesting) return refuse();
    open_ += byte;
    json() += byte;
    return true;
  }
  if (!is_in_python_name(byte) && byte != '-' && byte != '+' && byte != '.') return refuse();
  word_ = byte;
  return go(State::kWord);
}

bool PythonCalls::word_step(char byte) {
  if (is_in_python_name(byte) || byte == '.' || byte == '-' || byte == '+') {
    if (word_.size() == kMostNameBytes) return refuse();
    word_ += byte;
    return true;
  }
  const auto json_text = word_json(word_);
  if (!json_text) return refuse();
  json() += *json_text;
  return go(State::kAfterValue, false);
}

bool PythonCalls::string_step(char byte) {
  const bool is_first = json().ends_with('"') && word_.empty() && num_quotes_ == 1;
  if (byte == quote_) {
    if (num_quotes_ == 1) return is_first ? go(State::kTwoQuotes) : end_string();
    return ++num_end_quotes_ == 3 ? end_string() : true;
  }
  word_ = "x";  // the string is not empty
  for (; num_end_quotes_ > 0; --num_end_quotes_) append_json_escaped({&quote_, 1}, json());
  if (byte == '\n' && num_quotes_ == 1) return refuse();
  if (byte == '\\') return go(State::kEscape);
  append_json_escaped({&byte, 1}, json());
  return true;
}

bool PythonCalls::end_string() {
  json() += '"';
  return go(is_key_due() ? State::kAfterKey : State::kAfterValue);
}

bool PythonCalls::escape_step(char byte) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  state_ = State::kString;
  if (byte == '\n') return true;
  if (const auto letter = kLetters.find(byte); letter != std::string_view::npos) {
    append_json_escaped(kMeanings.substr(letter, 1), json());
    return true;
  }
  if (byte == 'N') return refuse();
  is_octal_ = byte >= '0' && byte <= '7';
  num_digits_ = is_octal_ ? 3 : byte == 'x' ? 2 : byte == 'u' ? 4 : byte == 'U' ? 8 : 0;
  code_ = 0;
  if (num_digits_ > 0) return go(State::kCode, !is_octal_);
  const char kept[] = {'\\', byte};
  append_json_escaped({kept, 2}, json());
  return true;
}

bool PythonCalls::code_step(char byte) {
  const int digit = hex_digit_value(byte);
  const bool is_digit_of_it = digit >= 0 && (!is_octal_ || digit < 8);
  if (is_digit_of_it) {
    code_ = code_ * (is_octal_ ? 8 : 16) + static_cast<uint32_t>(digit);
    if (--num_digits_ > 0) return true;
  } else if (!is_octal_) {
    return refuse();
  }
  if (code_ > 0x10ffff) return refuse();
  append_code(code_, json());
  return go(State::kString, is_digit_of_it);
}

bool PythonCalls::after_value(char byte) {
  if (is_white_space(byte)) return true;
  if (open_.empty()) {
    if (byte == ',') return go(State::kKeyword);
    return byte == ')' ? end_call(is_print_ ? State::kEndOfPrint : State::kAfterCall) : refuse();
  }
  const bool is_list = open_.back() == '[';
  if (byte == (is_list ? ']' : '}')) return close(byte);
  if (byte != ',') return refuse();
  if (!is_list) open_.back() = '{';
  needs_comma_ = true;
  return go(State::kValue);
}

bool PythonCalls::close(char bracket) {
  needs_comma_ = false;
  open_.pop_back();
  json() += bracket;
  return go(State::kAfterValue);
}

bool PythonCalls::end_call(State next) {
  Call& call = calls_.back();
  call.arguments += call.arguments.empty() ? "{}" : "}";
  call.end = at_ + 1;
  call.is_whole = true;
  return go(next);
}

bool PythonCalls::after_call(char byte) {
  if (state_ == State::kEndOfPrint) {
    if (is_white_space(byte)) return true;
    if (byte != ')') return refuse();
    is_print_ = false;
    return go(State::kAfterCall);
  }
  if (byte == ']' && is_list_) {
    is_list_ = false;
    if (form_ == Form::kList) status_ = Status::kWhole;
    return go(State::kAfterCall);
  }
  if (byte == ',' && is_list_) return go(State::kCall);
  if (form_ == Form::kBlock && !is_list_) {
    if (byte == '\n' || byte == ';') return go(State::kCall);
    if (byte == '#') return go(State::kComment);
  }
  return is_white_space(byte) ? true : refuse();
}

}  // namespace slime::text
