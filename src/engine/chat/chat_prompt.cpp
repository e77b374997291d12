#include "engine/chat/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "engine/chat/messages.h"
#include "engine/chat/prompt_requests.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

/// Of a prompt that is given as tokens: in so many last ones an open thought is looked for.
constexpr std::size_t kTailTokens = 512;

struct Prompt {
  std::vector<TokenId> ids;
  std::string text;  // or its end
};

/// What the template is given next to the messages.
json::object template_options(const ChatRequest& request, const json::array& tools,
                              std::vector<std::string>& problems) {
  constexpr auto kOwned = std::to_array<std::string_view>(
      {"messages", "tools", "add_generation_prompt", "continue_final_message"});
  json::object options = request.template_options;
  for (const std::string_view name : kOwned) {
    if (options.contains(name)) {
      problems.push_back(
          fmt::format("chat_template_kwargs.{} is refused: it is a field of its own", name));
    }
  }
  if (!tools.empty()) options["tools"] = tools;
  options["continue_final_message"] = request.continues_final_message;
  options["add_generation_prompt"] =
      request.adds_generation_prompt && !request.continues_final_message;
  return options;
}

Prompt rendered_prompt(const ChatRequest& request, const ServedModel& model, const ChatTools& tools,
                       std::vector<std::string>& problems) {
  const json::array messages =
      normalised_messages(request.messages, model.chat->traits(), problems);
  const json::object options = template_options(request, tools.shown, problems);
  if (!problems.empty()) throw ConfigError(problems);
  Prompt prompt;
  prompt.text = model.chat->render(messages, options);
  prompt.ids = encode_prompt(model, "messages", prompt.text, request.adds_special_tokens);
  return prompt;
}

Prompt given_prompt(std::vector<TokenId> ids, const ServedModel& model) {
  const std::span<const TokenId> last = std::span(ids).last(std::min(ids.size(), kTailTokens));
  std::string text = model.tokenizer->decode(last, false);
  return {std::move(ids), std::move(text)};
}

/// Tools, then the prompt: all problems are told at once.
Prompt make_prompt(const ChatRequest& request, const ServedModel& model, ChatTools& tools) {
  require_tokenizer(model);
  std::vector<std::string> problems;
  tools = checked_tools(request, problems);
  if (request.tool_choice.mode == ToolChoice::Mode::kRequired) {
    problems.emplace_back(
        "tool_choice must be \"auto\" or \"none\": forced calls need constrained decoding, which "
        "this engine does not do yet");
  }
  if (request.input_ids) {
    if (!problems.empty()) throw ConfigError(problems);
    return given_prompt(*request.input_ids, model);
  }
  if (model.chat == nullptr)
    throw ConfigError("messages: this model has no chat template; use /v1/completions");
  return rendered_prompt(request, model, tools, problems);
}

/// Of a model without a template, whose prompts are given as tokens: all is content.
const text::MessageFormat& format_of(const ServedModel& model) {
  static const text::MessageFormat kContentAlone(nullptr, nullptr, nullptr);
  return model.chat == nullptr ? kContentAlone : model.chat->format();
}

std::shared_ptr<const ChatReading> make_reading(const ChatRequest& request,
                                                const ServedModel& model, ChatTools tools,
                                                const std::string& prompt) {
  const text::MessageFormat& format = format_of(model);
  auto reading = std::make_shared<ChatReading>();
  reading->model = &model;
  reading->format = &format;
  reading->schemas = text::ToolSchemas(tools.shown);
  reading->reads_calls = format.calls() != nullptr && !tools.shown.empty();
  reading->reads_reasoning = format.reasoning() != nullptr && request.separates_reasoning;
  reading->parallel_calls = request.parallel_tool_calls;
  reading->streams_reasoning = request.streams_reasoning;
  if (format.reasoning() != nullptr) {
    reading->tail = text::prompt_tail(*format.reasoning(), prompt, request.continues_final_message);
  }
  reading->num_earlier_calls = num_calls_in(request.messages);
  reading->tools = std::move(tools);
  return reading;
}

}  // namespace

ChatCall prepare_chat(ChatRequest request, const ServedModel& model) {
  ChatTools tools;
  Prompt prompt = make_prompt(request, model, tools);
  if (request.truncate_prompt_tokens) {
    const auto most = static_cast<std::size_t>(*request.truncate_prompt_tokens);
    if (prompt.ids.size() > most)
      prompt.ids.erase(prompt.ids.begin(), prompt.ids.end() - static_cast<std::ptrdiff_t>(most));
  }
  GenerateRequest& engine = request.engine;
  // Marks that are special tokens would be lost from what the client is to take apart itself.
  const bool takes_apart = request.separates_reasoning || format_of(model).reasoning() == nullptr;
  engine.sampling.skip_special_tokens =
      request.skip_special_tokens.value_or(tools.shown.empty() && takes_apart);
  ChatCall call;
  call.reading = make_reading(request, model, std::move(tools), prompt.text);
  call.requests = make_requests(model, engine, {prompt.ids}, request.n, request.max_tokens);
  call.prompt_ids = std::move(prompt.ids);
  return call;
}

int64_t count_prompt_tokens(const ChatRequest& request, const ServedModel& model) {
  ChatTools tools;
  return static_cast<int64_t>(make_prompt(request, model, tools).ids.size());
}

}  // namespace slime::engine
