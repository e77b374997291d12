#include "text/messages/message_parser.h"

#include <algorithm>
#include <utility>

#include "text/messages/message_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::text {
namespace {

std::vector<Mark> marks_of(const CallFormat* calls, const ReasoningFormat* reasoning) {
  std::vector<Mark> marks;
  if (reasoning != nullptr) marks.assign(reasoning->marks.begin(), reasoning->marks.end());
  if (calls != nullptr) marks.insert(marks.end(), calls->marks.begin(), calls->marks.end());
  return marks;
}

std::vector<Mark> text_marks_of(const CallFormat* calls, MessageFormat::CallMarks marks) {
  if (marks == MessageFormat::CallMarks::kTokens) return {};
  return marks_of(calls, nullptr);
}

std::vector<std::string_view> inner_tokens_of(const CallFormat* calls) {
  if (calls == nullptr) return {};
  return {calls->inner_tokens.begin(), calls->inner_tokens.end()};
}

/// A model whose vocabulary lacks the separator writes the older form.
const CallSyntax* syntax_of(const CallFormat* calls, const Tokenizer* tokenizer) {
  if (calls == nullptr || calls->written.begin.empty()) return nullptr;
  const CallSyntax& older = calls->written_without_separator;
  if (older.begin.empty() || tokenizer == nullptr) return &calls->written;
  const auto separator = std::ranges::find(calls->marks, MarkRole::kSeparator, &Mark::role);
  return tokenizer->id_of(separator->spelling) ? &calls->written : &older;
}

}  // namespace

MessageFormat::MessageFormat(const CallFormat* calls, const ReasoningFormat* reasoning,
                             const Tokenizer* tokenizer, CallMarks call_marks)
    : calls_(calls),
      reasoning_(reasoning),
      call_syntax_(syntax_of(calls, tokenizer)),
      all_marks_(marks_of(calls, reasoning), inner_tokens_of(calls), tokenizer,
                 text_marks_of(calls, call_marks)),
      call_marks_(marks_of(calls, nullptr), inner_tokens_of(calls), tokenizer,
                  text_marks_of(calls, call_marks)),
      reasoning_marks_(marks_of(nullptr, reasoning), {}, tokenizer),
      no_marks_({}, {}, nullptr) {}

const MarkSet& MessageFormat::marks(bool of_calls, bool of_reasoning) const {
  if (of_calls) return of_reasoning ? all_marks_ : call_marks_;
  return of_reasoning ? reasoning_marks_ : no_marks_;
}

MessageParser::MessageParser(const MessageFormat& format, MessageRequest request)
    : reader_(std::make_unique<MessageReader>(format, std::move(request))) {}
MessageParser::~MessageParser() = default;
MessageParser::MessageParser(MessageParser&&) noexcept = default;
MessageParser& MessageParser::operator=(MessageParser&&) noexcept = default;

std::vector<MessageEvent> MessageParser::feed(std::string_view text) {
  reader_->feed(text);
  return reader_->writer().take();
}

std::vector<MessageEvent> MessageParser::feed(TokenId id, std::string_view text) {
  reader_->feed(id, text);
  return reader_->writer().take();
}

std::vector<MessageEvent> MessageParser::finish(OutputEnd end) {
  reader_->finish(end);
  return reader_->writer().take();
}

bool MessageParser::wants_stop() const { return reader_->writer().is_closed(); }
int MessageParser::num_calls() const { return reader_->writer().num_calls(); }
int MessageParser::num_errors() const { return reader_->writer().num_errors(); }

Message parse_message(const MessageFormat& format, MessageRequest request, std::string_view output,
                      OutputEnd end) {
  MessageParser parser(format, std::move(request));
  Message message;
  message.add(parser.feed(output));
  message.add(parser.finish(end));
  return message;
}

}  // namespace slime::text
