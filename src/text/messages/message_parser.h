#pragma once

/// Parser of a model's output into a message: thoughts, content and tool calls.
///
///   const MessageFormat format(*find_call_format("qwen25"), *find_reasoning_format("qwen3"),
///                              &tokenizer);
///   MessageParser parser(format, {.tools = &tools, .tail = prompt_tail(...),
///                                 .make_id = make_call_ids(...)});
///   for (const TokenId id : output) send(parser.feed(id, detokenizer.push(id)));
///   send(parser.finish(OutputEnd::kStop));
///
/// Fed with tokens, a mark that the vocabulary flags special counts when it was sampled as that
/// token, not when text spells it, and the text need not contain it. Any output is a message, and
/// any split of it the same one. Time is linear in its length.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/sample.h"
#include "text/messages/call_format.h"
#include "text/messages/mark_set.h"
#include "text/messages/message.h"
#include "text/messages/message_writer.h"
#include "text/messages/reasoning_format.h"
#include "text/messages/tool_schemas.h"

namespace slime::text {

class MessageReader;
class Tokenizer;

/// The formats of a served model, compiled for its vocabulary. Immutable; may be used by any number
/// of threads.
class MessageFormat final {
 public:
  /// Marks of calls that are special tokens: as those tokens alone, or also where text spells them, as a
  /// grammar that wants the mark lets a model do.
  enum class CallMarks { kTokens, kTokensOrText };

  /// Either format may be null: calls, or thoughts, are content then. Without a tokenizer all marks
  /// are found in text; it is not kept.
  MessageFormat(const CallFormat* calls, const ReasoningFormat* reasoning,
                const Tokenizer* tokenizer, CallMarks call_marks = CallMarks::kTokens);

  const CallFormat* calls() const { return calls_; }
  const ReasoningFormat* reasoning() const { return reasoning_; }
  /// How the model writes calls; null where that is not known.
  const CallSyntax* call_syntax() const { return call_syntax_; }

  /// Those of calls, of thoughts, of both or none.
  const MarkSet& marks(bool of_calls, bool of_reasoning) const;

 private:
  const CallFormat* calls_;
  const ReasoningFormat* reasoning_;
  const CallSyntax* call_syntax_;
  MarkSet all_marks_, call_marks_, reasoning_marks_, no_marks_;
};

struct MessageRequest {
  /// The request's tools; null, or none: calls are content. Outlives the parser.
  const ToolSchemas* tools = nullptr;
  bool reads_calls = true;      // false: tool_choice is "none"
  bool reads_reasoning = true;  // false: separate_reasoning is false
  bool parallel_calls = true;
  bool stream_reasoning = true;
  PromptTail tail = PromptTail::kMessage;
  MessageWriter::MakeId make_id;
};

/// One message, one thread. `format` outlives the object.
class MessageParser final {
 public:
  MessageParser(const MessageFormat& format, MessageRequest request);
  ~MessageParser();
  MessageParser(MessageParser&&) noexcept;
  MessageParser& operator=(MessageParser&&) noexcept;

  /// A piece of text, in which all marks are looked for.
  std::vector<MessageEvent> feed(std::string_view text);
  /// A token and the text that it released, which may be empty.
  std::vector<MessageEvent> feed(TokenId id, std::string_view text);
  /// Not called twice; nothing is fed afterwards.
  std::vector<MessageEvent> finish(OutputEnd end);

  /// What follows does not count: with parallel_calls false the first call has ended, and the
  /// engine may be stopped.
  bool wants_stop() const;
  int num_calls() const;
  /// Calls whose arguments are no JSON object, and marks of calls without a name that can be read.
  int num_errors() const;

 private:
  std::unique_ptr<MessageReader> reader_;
};

/// All of an output at once, as text.
Message parse_message(const MessageFormat& format, MessageRequest request, std::string_view output,
                      OutputEnd end);

}  // namespace slime::text
