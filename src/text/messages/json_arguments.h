#pragma once

/// Verbatim reader of a call's JSON arguments: the model's own text, without white space around it.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "text/messages/json_scanner.h"

namespace slime::text {

class JsonArguments final {
 public:
  JsonScanner::Step step(char byte);

  /// Reads arguments up to the end of an object or list that is JSON; of all else, the whole text.
  /// Returns how many bytes it took.
  std::size_t read(std::string_view text);
  /// One more byte of arguments that are no JSON from here on.
  void add_text(char byte);
  /// read() has reached the end.
  bool is_whole() const { return is_whole_; }

  /// What can be given out. White space outside of strings waits for what follows.
  std::string take() { return std::exchange(ready_, {}); }

  bool is_begun() const { return is_begun_; }
  char first() const { return scanner_.first(); }
  bool is_in_string() const { return !is_text_ && scanner_.is_in_string(); }
  /// It is a whole JSON object.
  bool is_object() const { return !is_text_ && scanner_.first() == '{' && scanner_.is_whole(); }
  bool is_valid() const { return scanner_.is_valid(); }
  bool is_null() const { return !is_text_ && scanner_.first() == 'n' && scanner_.is_whole(); }

 private:
  void add(char byte, bool is_space);

  JsonScanner scanner_;
  std::string ready_;
  std::string space_;
  bool is_begun_ = false;
  bool is_text_ = false;  // no JSON from here on
  bool is_whole_ = false;
};

/// The value of a JSON string's text between its quotes; nothing where it has an escape that does
/// not exist. An incomplete escape at the end is left out.
std::string decode_json_string(std::string_view raw, bool& is_valid);

/// Appends the text as part of a JSON string.
void append_json_escaped(std::string_view text, std::string& out);

}  // namespace slime::text
