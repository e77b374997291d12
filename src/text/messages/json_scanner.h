#pragma once

/// Incremental scanner of one JSON value: says after each byte whether the value goes on, and
/// whether it is JSON so far.
///
///   JsonScanner scanner;
///   for (const char byte : "{\"a\": 1}") scanner.step(byte);   // kInside ..., then kLast
///
/// A value that breaks the grammar is followed by its brackets and double-quoted strings alone, so
/// that its end is still found. Nothing is stored but a bit for each open bracket.

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slime::text {

/// Deeper JSON is not taken for JSON.
inline constexpr std::size_t kMostNesting = 512;

class JsonScanner final {
 public:
  enum class Step : uint8_t {
    kInside,  // white space in front of the value counts as inside
    kLast,    // this byte is the value's last one
    kBefore,  // the value, a number or no JSON, ended before this byte
  };
  /// Not called again after kLast or kBefore.
  Step step(char byte);

  /// No byte so far breaks the grammar.
  bool is_valid() const { return is_valid_; }
  /// The value is whole; a number that could go on is.
  bool is_whole() const;
  bool is_in_string() const {
    return state_ == State::kString || state_ == State::kEscape || state_ == State::kHex;
  }
  /// What the value begins with; 0 in front of it.
  char first() const { return first_; }

 private:
  enum class State : uint8_t {
    kValue,
    kFirstElement,
    kFirstKey,
    kKey,
    kColon,
    kSeparator,
    kString,
    kEscape,
    kHex,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kLiteral,
    kLoose,
    kLooseEscape,
    kDone,
  };
  Step begin_value(char byte);
  Step open(char byte);
  Step close(char byte);
  Step end_value();
  Step number(char byte);
  Step end_number(char byte);
  Step break_grammar(char byte);
  Step loose(char byte);
  Step string_end();
  bool is_object() const { return depth_ <= kMostNesting && objects_[depth_ - 1]; }

  std::bitset<kMostNesting> objects_;  // of the open brackets, which are braces
  std::size_t depth_ = 0;
  std::string_view literal_;  // what has to follow of true, false, null
  State state_ = State::kValue;
  uint8_t num_hex_ = 0;
  char first_ = 0;
  bool is_key_ = false;
  bool is_loose_ = false;
  bool is_valid_ = true;
};

/// Types of JSON values as JSON schema names them, as bits of a set.
struct JsonTypes {
  static constexpr uint8_t kNone = 0;
  static constexpr uint8_t kString = 1;
  static constexpr uint8_t kInteger = 2;  // 3 and 3.0
  static constexpr uint8_t kNumber = 4;
  static constexpr uint8_t kBoolean = 8;
  static constexpr uint8_t kArray = 16;
  static constexpr uint8_t kObject = 32;
  static constexpr uint8_t kNull = 64;
};

/// The types of which a text, without white space around it, is a value: 3 is an integer and a
/// number. kNone for text that is no JSON.
uint8_t json_types_of(std::string_view text);

}  // namespace slime::text
