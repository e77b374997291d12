#pragma once

/// Chat side of a served model: its template, what that takes, and the formats of its output.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/json.h"
#include "engine/chat/template_traits.h"
#include "text/messages/message_parser.h"

namespace slime::text {
class Tokenizer;
}

namespace slime::engine {

/// Names of SGLang's or vLLM's parsers; "auto": by the template; "none".
struct ChatParsers {
  std::string tool_calls = "auto";
  std::string reasoning = "auto";
};

/// Throws ConfigError when there is no parser of a name.
void check_parsers(const ChatParsers& parsers);

/// Immutable; may be used by any number of threads.
class ChatModel final {
 public:
  /// `template_source`: in which "auto" looks for marks. The tokenizer is not kept. Throws
  /// ConfigError when there is no parser of a name.
  ChatModel(RenderChatFn render, std::string_view template_source, const text::Tokenizer* tokenizer,
            const ChatParsers& parsers);

  /// Throws ConfigError, with the template's own words where it refuses the messages.
  std::string render(const json::array& messages, const json::object& options) const {
    return render_(messages, options);
  }
  const TemplateTraits& traits() const { return traits_; }
  const text::MessageFormat& format() const { return format_; }
  /// The same, and that of Qwen's calls where the template shows none: a grammar makes any model write it.
  const text::MessageFormat& format_of_forced_calls() const { return forced_format_; }
  const ChatParsers& parsers() const { return parsers_; }  // as they were named

  /// The same template with other parsers. Throws ConfigError when there is none of a name.
  std::shared_ptr<const ChatModel> with_parsers(const ChatParsers& parsers,
                                                const text::Tokenizer* tokenizer) const;

  /// For people: "tool calls: qwen25, reasoning: qwen3".
  std::string parser_names() const;

 private:
  ChatModel(const ChatModel& other, const text::Tokenizer* tokenizer, const ChatParsers& parsers);
  void set_call_ids();

  RenderChatFn render_;
  std::string template_source_;
  ChatParsers parsers_;
  TemplateTraits traits_;
  text::MessageFormat format_;
  text::MessageFormat forced_format_;
};

struct ChatModelSource {
  std::filesystem::path directory;
  std::filesystem::path template_file;              // empty: the directory's own template
  std::function<std::chrono::local_seconds()> now;  // what the template sees as the time
  ChatParsers parsers;
};

/// Throws ConfigError when there is no template, or it is no valid one.
std::shared_ptr<const ChatModel> load_chat_model(const ChatModelSource& source,
                                                 const text::Tokenizer& tokenizer);

}  // namespace slime::engine
