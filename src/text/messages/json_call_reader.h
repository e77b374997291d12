#pragma once

/// Reader of one call in a JSON object: {"name": "f", "arguments": {...}}.
///
/// "parameters" stands for "arguments", keys come in any order, arguments that are a JSON string
/// holding an object are decoded once, null and absent ones are {}. Arguments are the model's own
/// text, whatever it is. An object without a name is no call.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/messages/call_format.h"
#include "text/messages/json_arguments.h"
#include "text/messages/message_writer.h"

namespace slime::text {

/// One class because its members are the registers of one small machine.
class JsonCallReader final {
 public:
  /// `begin`: where the call's marks begin. `needs_arguments`: an object without them is no call.
  JsonCallReader(uint64_t begin, bool needs_arguments, bool has_id)
      : begin_(begin), needs_arguments_(needs_arguments), has_id_(has_id) {}

  enum class Status : uint8_t { kMore, kWhole, kNoCall };
  /// Reads a part of the output from `at` on, the first from the opening brace. Returns how many
  /// bytes it took; all of them while the status is kMore.
  std::size_t read(std::string_view text, uint64_t at, MessageWriter& writer);
  Status status() const { return status_; }

  /// Enough of it is known: if the output ends here, it is a call.
  bool is_call() const { return !name_.empty() && (!needs_arguments_ || has_arguments_); }
  const std::string& name() const { return name_; }
  /// What is known of the name, whole or not.
  std::string_view name_so_far() const {
    return state_ == State::kName ? std::string_view(token_) : std::string_view(name_);
  }
  /// Arguments would have come: it is a call without them.
  void expect_arguments() { needs_arguments_ = false; }
  /// All keys so far, and the one that is being read, are those of a call.
  bool looks_like_call() const;
  bool is_in_string() const;
  /// The object ends here, though its brace is missing. Only where is_call().
  void close(bool is_cut, uint64_t at, MessageWriter& writer);
  /// The arguments are a JSON object, once the status is kWhole or after close().
  bool has_json_arguments() const { return has_json_arguments_; }

 private:
  enum class State : uint8_t {
    kOpen,
    kFirstKey,
    kKey,
    kKeyText,
    kColon,
    kValue,
    kName,
    kId,
    kArguments,
    kArgumentsText,
    kSkip,
    kNext,
    kRaw,
  };
  bool step(char byte, uint64_t at, MessageWriter& writer);  // false: the byte was not taken
  bool begin_value(char byte, uint64_t at, MessageWriter& writer);
  bool text_step(char byte, uint64_t at, MessageWriter& writer);
  void end_text(uint64_t at, MessageWriter& writer);
  bool refuse(char byte);
  void end(bool is_cut, uint64_t at, MessageWriter& writer);
  void begin_call(uint64_t at, MessageWriter& writer);
  void flush_arguments(uint64_t at, MessageWriter& writer);
  void add_arguments(std::string_view text, uint64_t at, MessageWriter& writer);
  void decode_arguments(std::string_view end_quote, bool is_cut, uint64_t at,
                        MessageWriter& writer);

  uint64_t begin_;
  bool needs_arguments_;
  bool has_id_;
  State state_ = State::kOpen;
  Status status_ = Status::kMore;
  std::string token_;  // text of the string that is being read, as it is written
  std::string key_, name_, id_;
  std::string held_;  // arguments in front of the name
  JsonArguments arguments_;
  std::optional<JsonScanner> skipped_;
  uint64_t sent_ = 0;  // the end of what was given out
  bool is_escape_ = false;
  bool has_arguments_ = false;
  bool is_begun_ = false;
  bool has_json_arguments_ = true;  // absent ones are {}
  bool has_other_keys_ = false;
};

}  // namespace slime::text
