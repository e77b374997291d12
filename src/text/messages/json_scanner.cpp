#include "text/messages/json_scanner.h"

#include <algorithm>

namespace slime::text {
namespace {

bool is_json_space(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}
bool is_json_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_json_hex(char byte) {
  return is_json_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

JsonScanner::Step JsonScanner::step(char byte) {
  switch (state_) {
    case State::kString:
      if (byte == '"') return string_end();
      if (byte == '\\') {
        state_ = State::kEscape;
      } else if (static_cast<unsigned char>(byte) < 0x20) {
        is_valid_ = false;  // the string goes on: what follows is read as the model meant it
      }
      return Step::kInside;
    case State::kEscape:
      if (byte == 'u') {
        state_ = State::kHex;
        num_hex_ = 4;
        return Step::kInside;
      }
      if (std::string_view("\"\\/bfnrt").find(byte) == std::string_view::npos) is_valid_ = false;
      state_ = State::kString;
      return Step::kInside;
    case State::kHex:
      if (!is_json_hex(byte)) {
        is_valid_ = false;
        state_ = State::kString;
        return step(byte);
      }
      if (--num_hex_ == 0) state_ = State::kString;
      return Step::kInside;
    case State::kLiteral:
      if (byte != literal_.front()) return break_grammar(byte);
      literal_.remove_prefix(1);
      return literal_.empty() ? end_value() : Step::kInside;
    case State::kLoose:
      return loose(byte);
    case State::kLooseEscape:
      state_ = State::kLoose;
      return Step::kInside;
    case State::kMinus:
    case State::kZero:
    case State::kDigits:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kExponentSign:
    case State::kExponentDigits:
      return number(byte);
    default:
      break;
  }
  if (is_json_space(byte)) return Step::kInside;
  switch (state_) {
    case State::kValue:
      return begin_value(byte);
    case State::kFirstElement:
      return byte == ']' ? close(byte) : begin_value(byte);
    case State::kFirstKey:
      if (byte == '}') return close(byte);
      [[fallthrough]];
    case State::kKey:
      if (byte != '"') return break_grammar(byte);
      is_key_ = true;
      state_ = State::kString;
      return Step::kInside;
    case State::kColon:
      if (byte != ':') return break_grammar(byte);
      state_ = State::kValue;
      return Step::kInside;
    case State::kSeparator:
      if (byte == ',') {
        state_ = is_object() ? State::kKey : State::kValue;
        return Step::kInside;
      }
      if (byte == (is_object() ? '}' : ']')) return close(byte);
      return break_grammar(byte);
    default:
      return Step::kBefore;
  }
}

bool JsonScanner::is_whole() const {
  if (!is_valid_) return false;
  const bool is_number = state_ == State::kZero || state_ == State::kDigits ||
                         state_ == State::kFraction || state_ == State::kExponentDigits;
  return state_ == State::kDone || (depth_ == 0 && is_number);
}

JsonScanner::Step JsonScanner::begin_value(char byte) {
  if (first_ == 0) first_ = byte;
  switch (byte) {
    case '{':
    case '[':
      return open(byte);
    case '"':
      is_key_ = false;
      state_ = State::kString;
      return Step::kInside;
    case 't':
      literal_ = "rue";
      break;
    case 'f':
      literal_ = "alse";
      break;
    case 'n':
      literal_ = "ull";
      break;
    case '-':
      state_ = State::kMinus;
      return Step::kInside;
    case '0':
      state_ = State::kZero;
      return Step::kInside;
    default:
      if (!is_json_digit(byte)) return break_grammar(byte);
      state_ = State::kDigits;
      return Step::kInside;
  }
  state_ = State::kLiteral;
  return Step::kInside;
}

JsonScanner::Step JsonScanner::open(char byte) {
  if (depth_ == kMostNesting) return break_grammar(byte);
  objects_[depth_++] = byte == '{';
  state_ = byte == '{' ? State::kFirstKey : State::kFirstElement;
  return Step::kInside;
}

JsonScanner::Step JsonScanner::close(char) {
  --depth_;
  return end_value();
}

JsonScanner::Step JsonScanner::end_value() {
  state_ = depth_ == 0 ? State::kDone : State::kSeparator;
  return depth_ == 0 ? Step::kLast : Step::kInside;
}

JsonScanner::Step JsonScanner::string_end() {
  if (is_loose_) {
    state_ = State::kLoose;
    return Step::kInside;
  }
  if (is_key_) {
    state_ = State::kColon;
    return Step::kInside;
  }
  return end_value();
}

JsonScanner::Step JsonScanner::number(char byte) {
  const bool is_e = byte == 'e' || byte == 'E';
  State next = State::kDone;
  switch (state_) {
    case State::kMinus:
      next = byte == '0' ? State::kZero : is_json_digit(byte) ? State::kDigits : State::kDone;
      break;
    case State::kZero:
    case State::kDigits:
      if (state_ == State::kDigits && is_json_digit(byte)) next = State::kDigits;
      if (byte == '.') next = State::kPoint;
      if (is_e) next = State::kExponent;
      break;
    case State::kPoint:
    case State::kFraction:
      if (is_json_digit(byte)) next = State::kFraction;
      if (state_ == State::kFraction && is_e) next = State::kExponent;
      break;
    case State::kExponent:
      if (byte == '+' || byte == '-') next = State::kExponentSign;
      [[fallthrough]];
    default:
      if (is_json_digit(byte)) next = State::kExponentDigits;
      break;
  }
  if (next == State::kDone) return end_number(byte);
  state_ = next;
  return Step::kInside;
}

/// `byte` does not go on with the number.
JsonScanner::Step JsonScanner::end_number(char byte) {
  const bool is_number = state_ == State::kZero || state_ == State::kDigits ||
                         state_ == State::kFraction || state_ == State::kExponentDigits;
  if (!is_number) return break_grammar(byte);
  if (depth_ == 0) {
    const bool is_end = is_json_space(byte) || byte == ',' || byte == '}' || byte == ']';
    if (!is_end) return break_grammar(byte);
    state_ = State::kDone;
    return Step::kBefore;
  }
  state_ = State::kSeparator;
  return step(byte);
}

JsonScanner::Step JsonScanner::break_grammar(char byte) {
  is_valid_ = false;
  is_loose_ = true;
  state_ = State::kLoose;
  return loose(byte);
}

JsonScanner::Step JsonScanner::loose(char byte) {
  switch (byte) {
    case '"':
      state_ = State::kString;
      return Step::kInside;
    case '\\':
      state_ = State::kLooseEscape;
      return Step::kInside;
    case '{':
    case '[':
      ++depth_;
      return Step::kInside;
    case '}':
    case ']':
      if (depth_ == 0) return Step::kBefore;
      --depth_;
      return depth_ == 0 ? end_value() : Step::kInside;
    case ',':
      return depth_ == 0 ? Step::kBefore : Step::kInside;
    default:
      return Step::kInside;
  }
}

uint8_t json_types_of(std::string_view text) {
  if (text.empty() || is_json_space(text.front()) || is_json_space(text.back()))
    return JsonTypes::kNone;
  JsonScanner scanner;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto step = scanner.step(text[i]);
    if (!scanner.is_valid() || step == JsonScanner::Step::kBefore) return JsonTypes::kNone;
    if (step == JsonScanner::Step::kLast && i + 1 < text.size()) return JsonTypes::kNone;
  }
  if (!scanner.is_whole()) return JsonTypes::kNone;
  switch (text.front()) {
    case '{':
      return JsonTypes::kObject;
    case '[':
      return JsonTypes::kArray;
    case '"':
      return JsonTypes::kString;
    case 't':
    case 'f':
      return JsonTypes::kBoolean;
    case 'n':
      return JsonTypes::kNull;
    default:
      break;
  }
  if (text.find_first_of("eE") != std::string_view::npos) return JsonTypes::kNumber;
  const auto point = text.find('.');
  const bool is_integral = point == std::string_view::npos ||
                           text.find_first_not_of('0', point + 1) == std::string_view::npos;
  return is_integral ? JsonTypes::kInteger | JsonTypes::kNumber : JsonTypes::kNumber;
}

}  // namespace slime::text
