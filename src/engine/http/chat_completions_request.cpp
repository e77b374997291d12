#include "engine/http/chat_completions_request.h"

#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "engine/chat/thinking.h"
#include "engine/chat/tools.h"
#include "engine/http/chat_fields.h"
#include "engine/http/generate_request.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

void check_modalities(const FieldReader& fields) {
  if (const json::array* forms = fields.array("modalities")) {
    if (*forms != json::array{"text"})
      fields.note("modalities", "must be [\"text\"]: this engine serves text models");
  }
}

/// {"type": "enabled" | "disabled"} of SGLang's clients.
void read_thinking(const FieldReader& fields, ChatRequest& request) {
  constexpr auto kTypes =
      std::to_array<std::string_view>({"enabled", "disabled", "adaptive", "auto"});
  const auto thinking = fields.fields("thinking");
  if (!thinking) return;
  const auto type = thinking->required().one_of("type", kTypes);
  if (type == "enabled" || type == "disabled")
    switch_thinking(type == "enabled", request.template_options);
}

void read_tools(const FieldReader& fields, ChatRequest& request,
                std::vector<std::string>& problems) {
  if (const json::array* tools = fields.array("tools")) request.tools = *tools;
  if (const json::value* choice = fields.find("tool_choice"))
    request.tool_choice = read_tool_choice(*choice, problems);
}

std::optional<int64_t> read_max_tokens(const FieldReader& fields) {
  const auto old = fields.integer("max_tokens", 0, Limits::kMaxTokens);
  const auto count = fields.integer("max_completion_tokens", 0, Limits::kMaxTokens);
  return count ? count : old;
}

}  // namespace

ChatCompletionsCall parse_chat_completions(const json::object& body, const ServedModel& model,
                                           std::shared_ptr<ChatSession> session) {
  require_tokenizer(model);  // this route answers with text
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  ChatCompletionsCall call;
  ChatRequest request;
  OpenAiForm& form = call.form;
  read_chat_fields(fields, model, form, request);
  form.returns_logprobs = fields.boolean("logprobs").value_or(false);
  form.num_top_logprobs = fields.integer("top_logprobs", 0, Limits::kMaxTopLogprobs).value_or(0);
  ask_for_logprobs(form, request.engine);
  request.n = form.n;
  request.max_tokens = read_max_tokens(fields);
  read_thinking(fields, request);
  read_tools(fields, request, problems);
  refuse_unsupported(fields, kChatCompletions, kChats);
  check_modalities(fields);
  if (const json::value* ids = fields.find("input_ids"))
    request.input_ids = fields.token_ids(*ids, "input_ids", model.vocab_size);
  if (request.input_ids && request.input_ids->empty())
    fields.note("input_ids", "is empty: there is nothing to continue");
  // SGLang's clients send the messages, too, with the prompt's tokens.
  if (const json::array* messages = fields.array("messages")) {
    request.messages = *messages;
  } else if (!request.input_ids) {
    fields.note("messages", "must be a list of messages");
  }
  call.ignored_fields = ignored_fields(fields, kChatCompletions);
  if (!problems.empty()) throw ConfigError(problems);
  call.chat = prepare_chat(std::move(request), model, std::move(session));
  return call;
}

}  // namespace slime::engine
