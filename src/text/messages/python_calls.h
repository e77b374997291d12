#pragma once

/// Reader of calls in Python: [f(a='x', b=[1]), g()], arguments to JSON.
///
/// Keyword arguments that are literals: strings with Python's escapes, numbers, True, False, None,
/// lists, dictionaries with keys that are strings. The first byte that is anything else ends the
/// reading, so that text which only looks like calls is told from them early.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/messages/json_scanner.h"

namespace slime::text {

/// One class because its members are the registers of one small machine.
class PythonCalls final {
 public:
  /// kList: a list of calls, up to its bracket. kBlock: calls in lines or in lists, each perhaps
  /// inside of print(...); whoever reads it knows where the block ends.
  enum class Form : uint8_t { kList, kBlock };
  /// `begin` is the place of the first byte in the output.
  PythonCalls(Form form, uint64_t begin)
      : form_(form), at_(begin), state_(form == Form::kList ? State::kOpen : State::kCall) {}

  enum class Status : uint8_t { kMore, kWhole, kRefused };
  /// Returns how many bytes it took; the one that is refused is not taken.
  std::size_t read(std::string_view text);
  Status status() const { return status_; }

  struct Call {
    std::string name;
    std::string arguments;  // JSON, or the beginning of it
    uint64_t begin = 0;
    uint64_t end = 0;
    bool is_whole = false;
  };
  const std::vector<Call>& calls() const { return calls_; }
  /// All calls are whole and no other one has begun.
  bool is_between_calls() const;
  /// Behind the list's bracket, nothing of a call was read.
  bool is_at_first_call() const { return state_ == State::kCall && calls_.empty(); }
  /// The name that is being read.
  std::string_view partial_name() const {
    return state_ == State::kName ? word_ : std::string_view();
  }
  bool is_in_name() const { return state_ == State::kName || state_ == State::kCall; }

 private:
  enum class State : uint8_t {
    kOpen,  // the list's bracket
    kCall,  // a call, or the list's end
    kName,
    kAfterName,
    kKeyword,
    kInKeyword,
    kAfterKeyword,
    kValue,
    kWord,
    kTwoQuotes,
    kString,
    kEscape,
    kCode,
    kAfterKey,
    kAfterValue,
    kAfterCall,
    kEndOfPrint,
    kComment,
  };
  bool step(char byte);  // false: refused, or to be read once more in another state
  bool call_step(char byte);
  bool keyword_step(char byte);
  bool value_step(char byte);
  bool word_step(char byte);
  bool string_step(char byte);
  bool escape_step(char byte);
  bool code_step(char byte);
  bool after_value(char byte);
  bool after_call(char byte);
  bool begin_call();
  bool end_call(State next);
  bool end_string();
  bool close(char bracket);
  bool go(State next, bool is_taken = true);
  bool refuse();
  std::string& json() { return calls_.back().arguments; }
  bool is_key_due() const { return open_.ends_with('{'); }

  Form form_;
  uint64_t at_;  // place of the byte that is being read
  Status status_ = Status::kMore;
  State state_;
  std::vector<Call> calls_;
  std::string
      open_;  // brackets of values: '[', '{' where a key or its end is due, ':' in its value
  std::string word_;                // a name, a keyword, a literal without quotes
  char quote_ = 0;                  // of the string
  std::size_t num_quotes_ = 1;      // at each of its ends
  std::size_t num_end_quotes_ = 0;  // read so far
  uint32_t code_ = 0;               // of an escape
  int num_digits_ = 0;              // of it, still to be read
  bool is_octal_ = false;
  bool needs_comma_ = false;
  bool is_list_ = false;   // between the list's brackets
  bool is_print_ = false;  // inside of print(...)
};

}  // namespace slime::text
