#include "engine/chat/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "engine/chat/chat_grammar.h"
#include "engine/chat/chat_model.h"
#include "engine/chat/messages.h"
#include "engine/chat/prompt_requests.h"
#include "engine/http/api_error.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

/// Of a prompt that is given as tokens: in so many last ones an open thought is looked for.
constexpr std::size_t kTailTokens = 512;

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

ChatPrompt rendered_prompt(const ChatRequest& request, const ServedModel& model,
                           const ChatTools& tools, ChatSession* session,
                           std::vector<std::string>& problems) {
  const json::array messages =
      normalised_messages(request.messages, model.chat->traits(), problems);
  const json::object options = template_options(request, tools.shown, problems);
  if (!problems.empty()) throw ConfigError(problems);
  if (session != nullptr) {
    if (std::optional<ChatPrompt> prompt = session->continued(request, options))
      return *std::move(prompt);
  }
  ChatPrompt prompt;
  prompt.text = model.chat->render(messages, options);
  prompt.ids = encode_prompt(model, "messages", prompt.text, request.adds_special_tokens);
  return prompt;
}

ChatPrompt given_prompt(std::vector<TokenId> ids, const ServedModel& model) {
  const std::span<const TokenId> last = std::span(ids).last(std::min(ids.size(), kTailTokens));
  std::string text = model.tokenizer->decode(last, false);
  return {std::move(ids), std::move(text)};
}

/// Tools, then the prompt: all problems are told at once.
ChatPrompt make_prompt(const ChatRequest& request, const ServedModel& model, ChatSession* session,
                       ChatTools& tools) {
  require_tokenizer(model);
  std::vector<std::string> problems;
  tools = checked_tools(request, problems);
  if (request.input_ids) {
    if (!problems.empty()) throw ConfigError(problems);
    return given_prompt(*request.input_ids, model);
  }
  if (model.chat == nullptr)
    throw ConfigError("messages: this model has no chat template; use /v1/completions");
  return rendered_prompt(request, model, tools, session, problems);
}

/// Of a model without a template, whose prompts are given as tokens: all is content.
const text::MessageFormat& format_of(const ServedModel& model, const ChatRequest& request) {
  static const text::MessageFormat kContentAlone(nullptr, nullptr, nullptr);
  if (model.chat == nullptr) return kContentAlone;
  const bool is_forced = request.tool_choice.mode == ToolChoice::Mode::kRequired;
  return is_forced ? model.chat->format_of_forced_calls() : model.chat->format();
}

std::shared_ptr<const ChatReading> make_reading(const ChatRequest& request,
                                                const ServedModel& model, ChatTools tools,
                                                const std::string& prompt) {
  const text::MessageFormat& format = format_of(model, request);
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

ChatCall prepared_call(ChatRequest request, const ServedModel& model, ChatSession* session) {
  ChatTools tools;
  ChatPrompt prompt = make_prompt(request, model, session, tools);
  if (request.truncate_prompt_tokens) {
    const auto most = static_cast<std::size_t>(*request.truncate_prompt_tokens);
    if (prompt.ids.size() > most)
      prompt.ids.erase(prompt.ids.begin(), prompt.ids.end() - static_cast<std::ptrdiff_t>(most));
  }
  GenerateRequest& engine = request.engine;
  // Marks that are special tokens would be lost from what the client is to take apart itself.
  const bool takes_apart =
      request.separates_reasoning || format_of(model, request).reasoning() == nullptr;
  engine.sampling.skip_special_tokens =
      request.skip_special_tokens.value_or(tools.shown.empty() && takes_apart);
  ChatCall call;
  call.reading = make_reading(request, model, std::move(tools), prompt.text);
  set_grammar(request, {.format = format_of(model, request),
                        .tools = call.reading->tools,
                        .tail = call.reading->tail,
                        .prompt = prompt.text});
  call.requests = make_requests(model, engine, {prompt.ids}, request.n, request.max_tokens);
  call.prompt_ids = std::move(prompt.ids);
  return call;
}

}  // namespace

ChatCall prepare_chat(ChatRequest request, const ServedModel& model,
                      std::shared_ptr<ChatSession> session) {
  if (session == nullptr) return prepared_call(std::move(request), model, nullptr);
  session->begin(request);
  ChatCall call;
  try {
    call = prepared_call(std::move(request), model, session.get());
  } catch (const ApiError& error) {
    if (error.detail().code == "context_length_exceeded") session->refused_for_length();
    throw;
  }
  session->prepared(call);
  call.session = std::move(session);
  return call;
}

std::vector<TokenId> prompt_tokens(ChatRequest request, const ServedModel& model,
                                   ChatSession* session) {
  if (session != nullptr) session->begin(request);
  ChatTools tools;
  return make_prompt(request, model, session, tools).ids;
}

int64_t count_prompt_tokens(ChatRequest request, const ServedModel& model, ChatSession* session) {
  return static_cast<int64_t>(prompt_tokens(std::move(request), model, session).size());
}

}  // namespace slime::engine
