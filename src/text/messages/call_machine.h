#pragma once

/// The state machine of tool calls: runs of text and marks of any format of the table to a message.
///
///   content --mark--> body --{--> JSON object ----------------------> after --mark--> content
///                      |  \--header, separator--> JSON arguments ---/
///                      |   \--<function=f>, name--> parameters ----/
///                      \--neither: unreadable--mark--> content
///
/// Up to a call's name the output from the opening mark on may turn out to be text, so it is looked
/// up again from the lexer. A name that cannot be read makes all of it content; what was cut off
/// inside of a name is dropped. Once the name is known the call is given out, whatever follows.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/messages/call_format.h"
#include "text/messages/gemma_arguments.h"
#include "text/messages/json_arguments.h"
#include "text/messages/json_call_reader.h"
#include "text/messages/mark_lexer.h"
#include "text/messages/message_writer.h"
#include "text/messages/parameter_writer.h"
#include "text/messages/python_calls.h"
#include "text/messages/tool_schemas.h"

namespace slime::text {

/// One class because its members are the registers of one machine.
class CallMachine final {
 public:
  /// All of them outlive the object.
  CallMachine(const CallFormat& format, const ToolSchemas& tools, const MarkLexer& lexer,
              MessageWriter& writer);

  /// A mark inside of a string or a value is text if the string or value ends behind it.
  enum class Doubt : uint8_t { kNone, kStringEnd, kQuoteEnd, kValueEnd };
  /// What has to be found out before a mark that was not sampled as a token may be read.
  Doubt doubt_of(const Mark& mark) const;

  /// `is_tail`: the end of the output, which could have begun a mark.
  void read_text(const MarkLexer::Item& item, bool is_tail);
  void read_mark(const MarkLexer::Item& item);
  void finish(OutputEnd end, uint64_t at);

  /// The output from here on is still needed.
  uint64_t needed(uint64_t cursor) const { return is_pending() ? block_ : cursor; }

 private:
  enum class State : uint8_t {
    kContent,
    // A call may have begun; its name is not known.
    kSection,
    kBody,
    kHeader,
    kNameLine,
    kTag,
    kLineName,
    kBracedName,
    kObject,
    kPython,
    kUnreadable,
    // Inside of a call.
    kParameters,
    kKey,
    kKeyTag,
    kBeforeValue,
    kValue,
    kArguments,
    kBraced,
    kAfter,  // the call's arguments have ended
  };
  using Item = MarkLexer::Item;

  std::size_t step(std::string_view text, uint64_t at);
  std::size_t content(std::string_view text, uint64_t at);
  std::size_t body(std::string_view text, uint64_t at);
  std::size_t name(std::string_view text, uint64_t at);
  std::size_t tag(std::string_view text, uint64_t at);
  std::size_t object(std::string_view text, uint64_t at);
  std::size_t arguments(std::string_view text, uint64_t at);
  std::size_t braced(std::string_view text, uint64_t at);
  std::size_t python(std::string_view text, uint64_t at);
  std::size_t after(std::string_view text, uint64_t at);

  bool is_text_here(const Mark& mark) const;
  void open(const Item& item);
  void open_tag(const Item& item);
  void open_object(uint64_t at);
  void close(const Item& item);
  void separator(const Item& item);
  void fence(const Item& item);
  void open_key(const Item& item);

  /// An object is a call as soon as its name is known.
  bool is_object_call() const { return state_ == State::kObject && object_->is_call(); }
  bool is_pending() const {
    return state_ >= State::kSection && state_ <= State::kUnreadable && !is_object_call();
  }
  bool is_in_call() const { return state_ >= State::kParameters || is_object_call(); }
  bool has_role(MarkRole role) const;
  bool begin_call(uint64_t at, State next);
  bool begin_named(uint64_t at);
  void end_arguments(bool is_cut, uint64_t at);
  void give_end(bool is_cut, uint64_t at);
  void end_call(bool is_cut, uint64_t at);
  bool write_python(bool is_cut, uint64_t at);
  void unreadable(uint64_t at);
  void give_up(uint64_t end);
  void plain(std::string_view text, uint64_t at);
  void finish_pending(bool is_cut, uint64_t at);
  bool is_cut_off_call() const;

  const CallFormat& format_;
  const ToolSchemas& tools_;
  const MarkLexer& lexer_;
  MessageWriter& writer_;

  State state_ = State::kContent;
  uint64_t block_ = 0;    // where the call began that may turn out to be text
  uint64_t section_ = 0;  // where the last section began
  uint64_t arguments_end_ = 0;
  std::string name_, id_;  // as they are read
  bool is_reading_id_ = false;
  bool has_inner_space_ = false;
  bool may_be_json_ = true;   // in place of parameters
  bool is_bare_ = false;      // the call began without a mark
  bool is_list_ = false;      // objects in a JSON list
  bool is_tagged_ = false;    // the call began with a tag
  bool is_last_json_ = true;  // the last call's arguments are a JSON object
  bool is_end_due_ = false;   // of the call whose arguments have ended
  bool is_bare_due_ = true;   // the output may still begin with an object
  bool is_line_begin_ = true;
  bool expects_call_close_ = false;
  bool expects_section_close_ = false;
  std::optional<JsonCallReader> object_;
  std::optional<JsonArguments> arguments_;
  std::optional<GemmaArguments> braced_;
  std::optional<PythonCalls> python_;
  ParameterWriter parameters_;
};

}  // namespace slime::text
