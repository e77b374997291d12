#pragma once

/// The state machine of harmony, the form of gpt-oss: a row of messages with headers.
///
///   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json
///   <|message|>{...}<|call|>
///
/// Channel analysis is thoughts, a recipient makes a call, all else is content. The recipient may
/// stand in front of the channel. The prompt ends with <|start|>assistant, so the output begins
/// inside of a header. Headers are never shown.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/messages/json_arguments.h"
#include "text/messages/mark_lexer.h"
#include "text/messages/message_writer.h"
#include "text/messages/reasoning_format.h"

namespace slime::text {

class HarmonyMachine final {
 public:
  /// Without `reads_calls` a message to a tool is content as it is written, without
  /// `reads_reasoning` thoughts are content. The references outlive the object.
  HarmonyMachine(bool reads_calls, bool reads_reasoning, PromptTail tail, const MarkLexer& lexer,
                 MessageWriter& writer);

  /// A mark inside of a string of arguments is text if the string ends behind it.
  bool is_doubtful(const Mark& mark) const;
  void read_text(const MarkLexer::Item& item);
  void read_mark(const MarkLexer::Item& item);
  void finish(OutputEnd end, uint64_t at);
  /// The output from here on is still needed.
  uint64_t needed(uint64_t cursor) const { return part_ == Part::kText ? cursor : header_; }

 private:
  enum class Part : uint8_t { kRole, kChannel, kConstraint, kText };
  enum class Kind : uint8_t { kContent, kReasoning, kCall };

  void begin_header(uint64_t at);
  void begin_text(uint64_t at);
  void end_text(bool is_cut, uint64_t at);
  bool may_be_header() const;

  bool reads_calls_;
  bool reads_reasoning_;
  const MarkLexer& lexer_;
  MessageWriter& writer_;
  Part part_ = Part::kRole;
  Kind kind_ = Kind::kContent;
  uint64_t header_ = 0;         // where it begins
  std::string role_, channel_;  // what the header says in front of and behind its channel mark
  bool has_marks_ = false;      // the output has the form at all
  std::optional<JsonArguments> arguments_;
};

}  // namespace slime::text
