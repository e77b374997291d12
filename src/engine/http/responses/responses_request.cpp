#include "engine/http/responses/responses_request.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "engine/chat/thinking.h"
#include "engine/http/api_error.h"
#include "engine/http/chat_fields.h"
#include "engine/http/generate_request.h"
#include "engine/http/grammar_fields.h"
#include "engine/http/responses/responses_items.h"
#include "engine/http/training_fields.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

/// That would need answers that are kept.
void refuse_earlier_response(const FieldReader& fields) {
  if (const auto id = fields.text("previous_response_id", 1024); id && !id->empty()) {
    throw ApiError(
        {.status = 404, .code = "previous_response_not_found", .param = "previous_response_id"},
        "Previous response with id '" + *id +
            "' not found: this server keeps no answers; send their items as input.");
  }
}

void read_include(const FieldReader& fields, ResponsesRequest& request) {
  for (const std::string& name : fields.strings("include")) {
    request.answer.packs_reasoning |= name == "reasoning.encrypted_content";
    request.form.returns_logprobs |= name == "message.output_text.logprobs";
  }
  request.form.num_top_logprobs =
      fields.integer("top_logprobs", 0, Limits::kMaxTopLogprobs).value_or(0);
  request.form.returns_logprobs |= request.form.num_top_logprobs > 0;
}

void read_reasoning(const FieldReader& fields, ResponsesRequest& request) {
  const auto reasoning = fields.fields("reasoning");
  if (!reasoning) return;
  if (const auto effort = reasoning->text("effort", 64))
    set_reasoning_effort(*effort, request.chat.template_options);
  const auto summary = reasoning->text("summary", 64);
  request.answer.summarises_reasoning = summary && *summary != "none";
}

/// `text.format`: what the answer has to be.
void read_format(const FieldReader& fields, GenerateRequest& engine) {
  const auto text = fields.fields("text");
  const auto format = text ? text->fields("format") : std::nullopt;
  if (format) read_output_format(*format, "text.format", fields, engine);
}

/// What the answer repeats of the request, in the words of the protocol.
json::object echo_of(const FieldReader& fields, const ResponsesRequest& request) {
  const auto given = [&](std::string_view name, json::value otherwise) {
    const json::value* value = fields.find(name);
    return value == nullptr ? std::move(otherwise) : *value;
  };
  const SamplingParams& sampling = request.chat.engine.sampling;
  return {
      {"background", false},
      {"instructions", given("instructions", nullptr)},
      {"max_output_tokens", given("max_output_tokens", nullptr)},
      {"max_tool_calls", given("max_tool_calls", nullptr)},
      {"metadata", given("metadata", json::object())},
      {"model", json::value(request.form.model)},
      {"parallel_tool_calls", request.chat.parallel_tool_calls},
      {"previous_response_id", nullptr},
      {"prompt_cache_key", given("prompt_cache_key", nullptr)},
      {"reasoning", given("reasoning", json::object{{"effort", nullptr}, {"summary", nullptr}})},
      {"safety_identifier", given("safety_identifier", nullptr)},
      {"service_tier", "default"},
      {"store", false},
      {"temperature", sampling.temperature},
      {"text", given("text", json::object{{"format", {{"type", "text"}}}})},
      {"tool_choice", given("tool_choice", "auto")},
      {"tools", given("tools", json::array())},
      {"top_logprobs", request.form.num_top_logprobs},
      {"top_p", sampling.top_p},
      {"truncation", "disabled"},
      {"user", given("user", nullptr)}};
}

}  // namespace

ResponsesRequest read_responses_request(const json::object& body, const ServedModel& model) {
  require_tokenizer(model);  // this route answers with text
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  read_reasoning(fields, request);
  read_chat_fields(fields, model, request.form, chat);
  refuse_unsupported(fields, kResponses, kChats);
  refuse_earlier_response(fields);
  read_include(fields, request);
  ask_for_logprobs(request.form, chat.engine);
  ask_for_training_fields(request.form, chat.engine);
  chat.max_tokens = fields.integer("max_output_tokens", 0, Limits::kMaxTokens);
  read_format(fields, chat.engine);
  request.tools = ResponsesTools::read(fields, request.warnings);
  chat.tools = request.tools.chat_tools();
  chat.tool_choice = request.tools.read_choice(fields);
  chat.messages = messages_of_input(fields, request.warnings);
  if (const json::object* metadata = fields.object("metadata")) request.metadata = *metadata;
  if (request.form.n != 1) fields.note("n", "must be 1: an answer is one response");
  request.ignored_fields = ignored_fields(fields, kResponses);
  if (!problems.empty()) throw ConfigError(problems);
  request.answer.streams = request.form.streams;
  request.answer.echo = echo_of(fields, request);
  return request;
}

ResponsesCall parse_responses_call(const json::object& body, const ServedModel& model,
                                   std::shared_ptr<ChatSession> session) {
  ResponsesCall call{.request = read_responses_request(body, model), .chat = {}};
  call.chat = prepare_chat(std::move(call.request.chat), model, std::move(session));
  return call;
}

}  // namespace slime::engine
