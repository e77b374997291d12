#pragma once

/// Reader of Gemma 4's arguments: {key:<|"|>text<|"|>,n:3,list:[1,2]} to JSON, as it comes.

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "text/messages/json_scanner.h"

namespace slime::text {

class GemmaArguments final {
 public:
  /// Text, from the opening brace on. Returns how many bytes it took: up to the closing brace.
  std::size_t read(std::string_view text);
  /// The mark around strings.
  void quote();

  bool is_in_string() const { return state_ == State::kString; }
  bool is_whole() const { return state_ == State::kDone; }
  /// Everything so far is of the form; a bare word counts as a string.
  bool is_valid() const { return is_valid_; }
  /// JSON that was not taken yet.
  std::string take() { return std::exchange(json_, {}); }

 private:
  enum class State : uint8_t {
    kOpen,
    kKey,
    kQuotedKey,
    kColon,
    kValue,
    kWord,
    kString,
    kNext,
    kDone
  };
  void step(char byte);
  void begin_value(char byte);
  void end_word();
  void close();
  bool is_object() const { return depth_ <= kMostNesting && objects_[depth_ - 1]; }

  std::bitset<kMostNesting> objects_;
  std::size_t depth_ = 0;
  State state_ = State::kOpen;
  std::string word_;  // a key, or a value without quotes
  std::string json_;
  bool needs_comma_ = false;
  bool is_valid_ = true;
};

}  // namespace slime::text
