#include "text/messages/harmony_machine.h"

#include <algorithm>

#include "text/messages/white_space.h"

namespace slime::text {
namespace {

/// Takes the first word off a text.
std::string_view next_header_word(std::string_view& text) {
  text.remove_prefix(leading_white_space(text));
  const std::string_view word = text.substr(0, text.find_first_of(kWhiteSpace));
  text.remove_prefix(word.size());
  return word;
}

/// f of "assistant to=functions.f"; empty where it is not said to whom.
std::string_view recipient_of(std::string_view header) {
  while (!header.empty()) {
    std::string_view word = next_header_word(header);
    if (!word.starts_with("to=")) continue;
    word.remove_prefix(3);
    if (word.starts_with("functions.")) word.remove_prefix(10);
    return word;
  }
  return {};
}

}  // namespace

HarmonyMachine::HarmonyMachine(bool reads_calls, bool reads_reasoning, PromptTail tail,
                               const MarkLexer& lexer, MessageWriter& writer)
    : reads_calls_(reads_calls), reads_reasoning_(reads_reasoning), lexer_(lexer), writer_(writer) {
  if (tail == PromptTail::kMessage) return;
  part_ = Part::kText;
  has_marks_ = true;
  if (tail == PromptTail::kReasoning && reads_reasoning) kind_ = Kind::kReasoning;
}

bool HarmonyMachine::is_doubtful(const Mark& mark) const {
  const bool may_end = mark.role == MarkRole::kMessageEnd || mark.role == MarkRole::kMessageStart ||
                       mark.role == MarkRole::kChannel;
  return may_end && part_ == Part::kText && kind_ == Kind::kCall && arguments_->is_in_string();
}

void HarmonyMachine::read_text(const MarkLexer::Item& item) {
  const std::string_view text = lexer_.text(item);
  if (part_ != Part::kText) {
    std::string& part = part_ == Part::kRole ? role_ : channel_;
    if (part_ != Part::kConstraint)
      part += text.substr(0, kMostNameBytes - std::min(part.size(), kMostNameBytes));
    if (has_marks_ || may_be_header()) return;
    part_ = Part::kText;  // the model does not write in this form
    writer_.content(lexer_.text(header_, item.end), {header_, item.end});
    return;
  }
  const Span at{item.begin, item.end};
  if (kind_ == Kind::kCall) {
    arguments_->read(text);
    writer_.arguments(arguments_->take(), at);
  } else if (kind_ == Kind::kReasoning) {
    writer_.reasoning(text, at);
  } else {
    writer_.content(text, at);
  }
}

void HarmonyMachine::read_mark(const MarkLexer::Item& item) {
  switch (item.mark->role) {
    case MarkRole::kMessageStart:
    case MarkRole::kMessageEnd:
      end_text(false, item.end);
      begin_header(item.mark->role == MarkRole::kMessageStart ? item.begin : item.end);
      break;
    case MarkRole::kChannel:
      if (part_ == Part::kText) {
        end_text(false, item.begin);
        begin_header(item.begin);
      }
      part_ = Part::kChannel;
      break;
    case MarkRole::kConstrain:
      if (part_ == Part::kText) return read_text(item);
      part_ = Part::kConstraint;
      break;
    case MarkRole::kMessageText:
      if (part_ == Part::kText) return read_text(item);
      begin_text(item.end);
      break;
    default:
      return read_text(item);
  }
  has_marks_ = true;
}

void HarmonyMachine::begin_header(uint64_t at) {
  part_ = Part::kRole;
  header_ = at;
  role_.clear();
  channel_.clear();
}

void HarmonyMachine::begin_text(uint64_t at) {
  part_ = Part::kText;
  std::string_view recipient = recipient_of(role_);
  if (recipient.empty()) recipient = recipient_of(channel_);
  std::string_view channel = channel_;
  const bool is_analysis = next_header_word(channel) == "analysis";
  if (!recipient.empty() && reads_calls_ && writer_.may_begin_call()) {
    kind_ = Kind::kCall;
    arguments_.emplace();
    writer_.begin_call(recipient, {}, {header_, at});
  } else if (is_analysis && recipient.empty() && reads_reasoning_) {
    kind_ = Kind::kReasoning;
    writer_.break_reasoning();
  } else {
    kind_ = Kind::kContent;
    writer_.join_content();
    if (!recipient.empty()) writer_.content(lexer_.text(header_, at), {header_, at});
  }
}

void HarmonyMachine::end_text(bool is_cut, uint64_t at) {
  if (part_ != Part::kText || kind_ != Kind::kCall) return;
  if (!arguments_->is_begun() && !is_cut) writer_.arguments("{}", {at - 1, at});
  writer_.end_call(is_cut || !arguments_->is_begun() || arguments_->is_object(), {at - 1, at});
  kind_ = Kind::kContent;
}

/// Whether an output without any mark so far can be the header that the prompt began.
bool HarmonyMachine::may_be_header() const {
  std::string_view text = role_;
  while (!text.empty()) {
    const std::string_view word = next_header_word(text);
    const bool is_last = text.empty();
    const auto is_or_begins = [&](std::string_view known) {
      return word == known || (is_last && known.starts_with(word));
    };
    if (!is_or_begins("assistant") && !is_or_begins("to=") && !word.starts_with("to="))
      return word.empty();
  }
  return true;
}

void HarmonyMachine::finish(OutputEnd end, uint64_t at) {
  const bool is_cut = end == OutputEnd::kCut;
  if (part_ == Part::kText) return end_text(is_cut, at);
  if (!has_marks_) writer_.content(lexer_.text(header_, at), {header_, at});
}

}  // namespace slime::text
