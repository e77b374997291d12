#include "engine/http/anthropic/anthropic_request.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "engine/chat/thinking.h"
#include "engine/http/anthropic/anthropic_messages.h"
#include "engine/http/anthropic/anthropic_tools.h"
#include "engine/http/chat_fields.h"
#include "engine/http/generate_request.h"
#include "engine/http/grammar_fields.h"
#include "engine/http/training_fields.h"
#include "engine/sampling_json.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

void read_thinking(const FieldReader& fields, json::object& options) {
  constexpr auto kTypes =
      std::to_array<std::string_view>({"enabled", "adaptive", "between_tools", "disabled"});
  if (const auto thinking = fields.fields("thinking")) {
    const auto type = thinking->required().one_of("type", kTypes);
    if (type) switch_thinking(*type != "disabled", options);
  }
  const auto output = fields.fields("output_config");
  const auto effort = output ? output->text("effort", 64) : std::nullopt;
  if (effort) set_reasoning_effort(*effort, options);
}

/// `output_config.format`, or `output_format` of older clients: what the answer has to be.
void read_formats(const FieldReader& fields, GenerateRequest& engine) {
  const auto output = fields.fields("output_config");
  if (const auto format = output ? output->fields("format") : std::nullopt)
    read_output_format(*format, "output_config.format", fields, engine);
  if (const auto format = fields.fields("output_format"))
    read_output_format(*format, "output_format", fields, engine);
}

}  // namespace

AnthropicRequest read_anthropic_request(const json::object& body, const ServedModel& model,
                                        bool counts) {
  require_tokenizer(model);  // this route answers with text
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  AnthropicRequest request;
  ChatRequest& chat = request.chat;
  read_thinking(fields, chat.template_options);
  read_chat_fields(fields, model, request.form, chat);
  ask_for_logprobs(request.form, chat.engine);
  ask_for_training_fields(request.form, chat.engine);
  const FieldReader limits = counts ? fields : fields.required();
  chat.max_tokens = limits.integer("max_tokens", 1, Limits::kMaxTokens);
  for (std::string& stop :
       fields.texts("stop_sequences", SamplingLimits::kMaxStops, SamplingLimits::kMaxStopBytes))
    chat.engine.sampling.stop.push_back(std::move(stop));
  read_formats(fields, chat.engine);
  AnthropicTools tools = read_anthropic_tools(fields, request.warnings);
  chat.tools = std::move(tools.chat_tools);
  chat.tool_choice = std::move(tools.choice);
  chat.parallel_tool_calls = tools.parallel;
  AnthropicConversation conversation = read_anthropic_messages(fields);
  chat.messages = std::move(conversation.messages);
  chat.continues_final_message = conversation.continues_final_message;
  refuse_unsupported(fields, kMessages, kChats);
  if (request.form.n != 1) fields.note("n", "must be 1: an answer is one message");
  request.ignored_fields = ignored_fields(fields, kMessages);
  if (!problems.empty()) throw ConfigError(problems);
  return request;
}

AnthropicCall parse_anthropic_call(const json::object& body, const ServedModel& model,
                                   std::shared_ptr<ChatSession> session) {
  AnthropicCall call{.request = read_anthropic_request(body, model, false)};
  call.max_tokens = call.request.chat.max_tokens.value_or(0);
  call.chat = prepare_chat(std::move(call.request.chat), model, std::move(session));
  return call;
}

}  // namespace slime::engine
