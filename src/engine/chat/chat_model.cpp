#include "engine/chat/chat_model.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

template <typename Format>
const Format* chosen(const std::string& name, const char* flag,
                     Expected<const Format*> (*find)(std::string_view),
                     const Format* (*of_template)(std::string_view), std::string_view source) {
  if (name == "auto") return of_template(source);
  if (name.empty() || name == "none") return nullptr;
  auto found = find(name);
  if (!found) throw ConfigError(fmt::format("{}: {}", flag, found.error().message));
  return *found;
}

const text::CallFormat* call_format(const ChatParsers& parsers, std::string_view source) {
  return chosen<text::CallFormat>(parsers.tool_calls, "--tool-call-parser", text::find_call_format,
                                  text::call_format_of_template, source);
}

const text::CallFormat* forced_call_format(const ChatParsers& parsers, std::string_view source) {
  const text::CallFormat* known = call_format(parsers, source);
  return known == nullptr && parsers.tool_calls == "auto" ? *text::find_call_format("qwen25")
                                                          : known;
}

const text::ReasoningFormat* reasoning_format(const ChatParsers& parsers, std::string_view source) {
  return chosen<text::ReasoningFormat>(parsers.reasoning, "--reasoning-parser",
                                       text::find_reasoning_format,
                                       text::reasoning_format_of_template, source);
}

}  // namespace

void check_parsers(const ChatParsers& parsers) {
  static_cast<void>(call_format(parsers, ""));
  static_cast<void>(reasoning_format(parsers, ""));
}

ChatModel::ChatModel(RenderChatFn render, std::string_view template_source,
                     const text::Tokenizer* tokenizer, const ChatParsers& parsers)
    : render_(std::move(render)),
      template_source_(template_source),
      parsers_(parsers),
      traits_(probe_template(render_)),
      format_(call_format(parsers, template_source), reasoning_format(parsers, template_source),
              tokenizer),
      forced_format_(forced_call_format(parsers, template_source),
                     reasoning_format(parsers, template_source), tokenizer,
                     text::MessageFormat::CallMarks::kTokensOrText) {
  set_call_ids();
}

ChatModel::ChatModel(const ChatModel& other, const text::Tokenizer* tokenizer,
                     const ChatParsers& parsers)
    : render_(other.render_),
      template_source_(other.template_source_),
      parsers_(parsers),
      traits_(other.traits_),
      format_(call_format(parsers, template_source_), reasoning_format(parsers, template_source_),
              tokenizer),
      forced_format_(forced_call_format(parsers, template_source_),
                     reasoning_format(parsers, template_source_), tokenizer,
                     text::MessageFormat::CallMarks::kTokensOrText) {
  set_call_ids();
}

void ChatModel::set_call_ids() {
  const text::CallFormat* calls = format_.calls();
  if (calls != nullptr && calls->ids == text::CallIds::kKimi)
    traits_.call_ids = CallIdForm::kNumbered;
}

std::shared_ptr<const ChatModel> ChatModel::with_parsers(const ChatParsers& parsers,
                                                         const text::Tokenizer* tokenizer) const {
  return std::shared_ptr<const ChatModel>(new ChatModel(*this, tokenizer, parsers));
}

std::string ChatModel::parser_names() const {
  const auto name = [](const auto* format) { return format ? format->name : "none"; };
  return fmt::format("tool calls: {}, reasoning: {}", name(format_.calls()),
                     name(format_.reasoning()));
}

std::shared_ptr<const ChatModel> load_chat_model(const ChatModelSource& source,
                                                 const text::Tokenizer& tokenizer) {
  using text::ChatTemplate;
  const auto chat = std::make_shared<const ChatTemplate>(
      source.template_file.empty() ? ChatTemplate::load(source.directory)
                                   : ChatTemplate::load(source.directory, source.template_file));
  RenderChatFn render = [chat, now = source.now](const json::array& messages,
                                                 const json::object& object) {
    auto options = text::to_chat_options(object);
    if (!options) throw ConfigError("chat_template_kwargs: " + options.error().message);
    options->now = now();
    auto rendered = chat->render(messages, *options);
    if (!rendered)
      throw ConfigError("messages: the chat template refused them: " + rendered.error().message);
    return *std::move(rendered);
  };
  return std::make_shared<const ChatModel>(std::move(render), chat->source(), &tokenizer,
                                           source.parsers);
}

}  // namespace slime::engine
