#include "engine/http/openai_request.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string_view>

#include "core/error.h"
#include "engine/http/api_error.h"
#include "engine/http/generate_request.h"
#include "engine/http/request_body.h"
#include "engine/sampling_json.h"
#include "engine/sampling_params.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

constexpr std::size_t kMaxMessages = 16384;
constexpr std::size_t kMaxTools = 1024;
constexpr std::int64_t kCompletionMaxTokens = 16;  // OpenAI's default

/// Fields of both kinds of request, next to the sampling parameters. What changes nothing here comes last: who asks, what is kept or
/// billed, where a request is computed, how it is logged (docs/how/engine_client.md).
constexpr auto kCommonFields = std::to_array<std::string_view>(
    {"model", "n", "stream", "stream_options", "stop_regex", "logprobs", "rid", "return_meta_info",
     "return_token_ids", "return_prompt_token_ids", "return_hidden_states", "return_routed_experts",
     "response_format", "json_schema", "regex", "ebnf", "lora_path", "session_params", "cache_salt",
     "extra_key",
     //
     "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
     "prompt_cache_retention", "prediction", "verbosity", "session_id", "routing_key",
     "routed_dp_rank", "data_parallel_rank", "priority", "no_logs", "custom_labels",
     "log_metrics"});
constexpr auto kChatFields = std::to_array<std::string_view>(
    {"messages", "input_ids", "max_completion_tokens", "top_logprobs", "tools", "tool_choice",
     "chat_template_kwargs", "reasoning_effort", "continue_final_message", "functions",
     "function_call", "audio", "modalities", "web_search_options",
     //
     "parallel_tool_calls", "separate_reasoning", "stream_reasoning"});
constexpr auto kCompletionFields =
    std::to_array<std::string_view>({"prompt", "echo", "suffix", "best_of"});

void refuse_unknown_names(FieldReader& fields, std::span<const std::string_view> own) {
  std::vector<std::string_view> known = sampling_names(SamplingNames::kOpenAi);
  known.insert(known.end(), kCommonFields.begin(), kCommonFields.end());
  known.insert(known.end(), own.begin(), own.end());
  fields.refuse_unknown(known);
}

struct Prompt {
  std::vector<TokenId> ids;
  std::string text;
};

/// {"type":"text","text":...} parts become one string, as SGLang does for templates that expect
/// strings.
json::value flatten_content(const json::array& parts, FieldReader& fields) {
  std::string text;
  for (const json::value& part : parts) {
    const json::object* object = part.if_object();
    const json::value* type = object != nullptr ? object->if_contains("type") : nullptr;
    const json::value* content = object != nullptr ? object->if_contains("text") : nullptr;
    if (type == nullptr || *type != "text" || content == nullptr || !content->is_string()) {
      fields.note("messages",
                  "content parts must be {\"type\": \"text\", \"text\": ...}; this engine serves "
                  "text models");
      return nullptr;
    }
    if (!text.empty()) text += ' ';
    text += content->get_string();
  }
  return json::value(text);
}

/// Arguments arrive as JSON in a string; templates want the object.
void open_tool_arguments(json::object& message) {
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (json::value& call : calls->get_array()) {
    json::object* object = call.if_object();
    json::value* function = object != nullptr ? object->if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object()) continue;
    json::value* arguments = function->get_object().if_contains("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    std::optional<json::value> parsed = try_parse_json(arguments->get_string());
    if (parsed && parsed->is_object()) *arguments = *std::move(parsed);
  }
}

json::array read_messages(FieldReader& fields) {
  const json::array* list = fields.array("messages");
  json::array messages;
  if (list == nullptr || list->empty() || list->size() > kMaxMessages) {
    fields.note("messages", fmt::format("must be a list of 1 to {} messages", kMaxMessages));
    return messages;
  }
  for (const json::value& value : *list) {
    const json::object* message = value.if_object();
    const json::value* role = message != nullptr ? message->if_contains("role") : nullptr;
    if (role == nullptr || !role->is_string()) {
      fields.note("messages", "must be objects with a role");
      return messages;
    }
    json::object copy = *message;
    if (json::value* content = copy.if_contains("content")) {
      if (content->is_array()) *content = flatten_content(content->get_array(), fields);
      if (!content->is_string() && !content->is_null())
        fields.note("messages", "content must be text");
    }
    open_tool_arguments(copy);
    messages.push_back(std::move(copy));
  }
  return messages;
}

/// Which tools the template sees. Forcing a call needs a grammar, which the engine has not.
const json::array* read_tools(FieldReader& fields) {
  const json::array* tools = fields.array("tools");
  if (tools != nullptr && tools->size() > kMaxTools) {
    fields.note("tools", fmt::format("may have {} members", kMaxTools));
  }
  const json::value* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return tools;
  if (*choice == "none") return nullptr;
  fields.note(
      "tool_choice",
      "must be \"auto\" or \"none\": forced calls need constrained decoding, which this engine "
      "does not do yet");
  return nullptr;
}

json::object read_template_options(FieldReader& fields) {
  json::object options;
  if (const json::object* extra = fields.object("chat_template_kwargs")) options = *extra;
  if (const auto effort = fields.text("reasoning_effort", 64))
    options["reasoning_effort"] = *effort;
  if (const json::array* tools = read_tools(fields); tools != nullptr && !tools->empty())
    options["tools"] = *tools;
  const bool continues = fields.boolean("continue_final_message").value_or(false);
  options["continue_final_message"] = continues;
  options["add_generation_prompt"] = !continues;
  return options;
}

void refuse_unsupported_in_chats(FieldReader& fields) {
  fields.refuse("functions", "is not supported; use tools");
  fields.refuse("function_call", "is not supported; use tool_choice");
  fields.refuse("audio", "is refused: this engine serves text models");
  fields.refuse("web_search_options", "is not supported");
  if (const json::array* forms = fields.array("modalities")) {
    if (*forms != json::array{"text"})
      fields.note("modalities", "must be [\"text\"]: this engine serves text models");
  }
}

void refuse_unsupported_by_openai_routes(FieldReader& fields) {
  for (const char* name : {"json_schema", "regex", "ebnf"}) {
    fields.refuse(name, "asks for constrained decoding, which this engine does not do yet");
  }
  if (const json::object* format = fields.object("response_format")) {
    const json::value* type = format->if_contains("type");
    if (type == nullptr || *type != "text") {
      fields.note("response_format",
                  "must be of type \"text\": this engine does not do constrained decoding yet");
    }
  }
  fields.refuse("stop_regex", "is not supported; stop takes strings");
  fields.refuse("lora_path", "is refused: adapters are not supported");
  fields.refuse("session_params", "is refused: sessions are not supported");
  fields.refuse("return_hidden_states", "is not supported");
  fields.refuse("return_routed_experts", "is not supported");
}

/// What both kinds of request share; the prompts are added afterwards.
GenerateRequest read_common(FieldReader& fields, const ServedModel& model, OpenAiCall& call) {
  GenerateRequest request;
  request.sampling = model.sampling_defaults;
  call.model = fields.text("model", 1024).value_or("default");
  call.n = static_cast<std::size_t>(fields.integer("n", 1, Limits::kMaxN).value_or(1));
  call.streams = fields.boolean("stream").value_or(false);
  if (const json::object* stream = fields.object("stream_options")) {
    if (const json::value* usage = stream->if_contains("include_usage"))
      call.includes_usage = *usage == true;
  }
  call.returns_meta_info = fields.boolean("return_meta_info").value_or(false);
  call.returns_token_ids = fields.boolean("return_token_ids").value_or(false);
  call.returns_prompt_token_ids = fields.boolean("return_prompt_token_ids").value_or(false);
  request.rid = fields.text("rid", Limits::kMaxRidBytes).value_or("");
  request.cache_salt = joined_salt(fields.text("cache_salt", Limits::kMaxSaltBytes).value_or(""),
                                   fields.text("extra_key", Limits::kMaxSaltBytes).value_or(""));
  read_sampling_params(fields, SamplingNames::kOpenAi, model.vocab_size, request.sampling);
  require_tokenizer_for_stop(fields, model);
  refuse_unsupported_by_openai_routes(fields);
  return request;
}

/// Expands prompts times n into requests and checks what only the whole shows.
void add_requests(OpenAiCall& call, const GenerateRequest& shared, std::vector<Prompt> prompts,
                  std::optional<std::int64_t> max_tokens, const ServedModel& model,
                  std::vector<std::string>& problems) {
  std::size_t num_tokens = 0;
  for (const Prompt& prompt : prompts) num_tokens += prompt.ids.size();
  if (prompts.size() * call.n > static_cast<std::size_t>(Limits::kMaxBatch) ||
      num_tokens * call.n > Limits::kMaxTotalTokens) {
    problems.push_back(fmt::format("n times the prompts must be at most {} requests and {} tokens",
                                   Limits::kMaxBatch, Limits::kMaxTotalTokens));
  }
  if (!problems.empty()) throw ConfigError(problems);
  const bool is_single = prompts.size() * call.n == 1;
  for (Prompt& prompt : prompts) {
    const auto length = static_cast<std::int64_t>(prompt.ids.size());
    if (length == 0) problems.push_back("the prompt is empty: there is nothing to continue");
    if (length >= model.context_length) throw context_length_exceeded(model.context_length, length);
    for (std::size_t copy = 0; copy < call.n; ++copy) {
      GenerateRequest request = shared;
      request.input_ids = prompt.ids;
      request.sampling.max_new_tokens = max_tokens.value_or(model.context_length - length);
      if (request.sampling.sampling_seed) *request.sampling.sampling_seed += copy;
      if (request.rid.empty()) {
        request.rid = make_rid();
      } else if (!is_single) {
        request.rid += fmt::format("_{}", call.requests.size());
      }
      call.requests.push_back(std::move(request));
    }
    if (call.echoes) call.prompt_texts.push_back(std::move(prompt.text));
    for (const std::string& problem :
         problems_of(call.requests.back().sampling, model.vocab_size, SamplingNames::kOpenAi)) {
      problems.push_back(problem);
    }
    if (!problems.empty()) throw ConfigError(problems);
  }
}

Prompt prompt_of_ids(const ServedModel& model, std::vector<TokenId> ids) {
  std::string text = model.tokenizer->decode(ids, false);
  return {std::move(ids), std::move(text)};
}

std::vector<Prompt> read_completion_prompts(FieldReader& fields, const ServedModel& model) {
  const json::value* given = fields.find("prompt");
  std::vector<Prompt> prompts;
  const auto complain = [&] {
    fields.note(
        "prompt",
        fmt::format("must be a string, a list of token ids, or a list of up to {} of either",
                    Limits::kMaxBatch));
  };
  const auto add = [&](const json::value& one) {
    if (one.is_string()) {
      prompts.push_back(
          {encode_prompt(model, "prompt", one.get_string(), true), std::string(one.get_string())});
    } else {
      prompts.push_back(prompt_of_ids(model, fields.token_ids(one, "prompt", model.vocab_size)));
    }
  };
  const json::array* list = given != nullptr ? given->if_array() : nullptr;
  if (given == nullptr || (list == nullptr && !given->is_string()) ||
      (list != nullptr && list->empty())) {
    complain();
  } else if (list == nullptr || (*list)[0].is_number()) {
    add(*given);
  } else if (list->size() > static_cast<std::size_t>(Limits::kMaxBatch)) {
    complain();
  } else {
    for (const json::value& one : *list) add(one);
  }
  return prompts;
}

}  // namespace

OpenAiCall parse_chat_call(const json::object& body, const ServedModel& model) {
  require_tokenizer(model);  // these routes answer with text
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  OpenAiCall call;
  GenerateRequest shared = read_common(fields, model, call);
  call.returns_logprobs = fields.boolean("logprobs").value_or(false);
  call.num_top_logprobs = fields.integer("top_logprobs", 0, Limits::kMaxTopLogprobs).value_or(0);
  shared.return_logprob = call.returns_logprobs;
  shared.top_logprobs_num = call.returns_logprobs ? call.num_top_logprobs : 0;
  const auto old_max_tokens = fields.integer("max_tokens", 0, Limits::kMaxTokens);
  auto max_tokens = fields.integer("max_completion_tokens", 0, Limits::kMaxTokens);
  if (!max_tokens) max_tokens = old_max_tokens;

  Prompt prompt;
  const json::object options = read_template_options(fields);
  const json::value* ids = fields.find("input_ids");
  refuse_unsupported_in_chats(fields);
  refuse_unknown_names(fields, kChatFields);
  if (ids != nullptr) {  // SGLang's way around the template; its clients send the messages too
    prompt.ids = fields.token_ids(*ids, "input_ids", model.vocab_size);
    if (!problems.empty()) throw ConfigError(problems);
  } else {
    const json::array messages = read_messages(fields);
    if (!problems.empty()) throw ConfigError(problems);
    if (!model.render_chat)
      throw ConfigError("messages: this model has no chat template; use /v1/completions");
    // The template writes the BOS itself.
    prompt.ids = encode_prompt(model, "messages", model.render_chat(messages, options), false);
  }
  add_requests(call, shared, {std::move(prompt)}, max_tokens, model, problems);
  return call;
}

OpenAiCall parse_completion_call(const json::object& body, const ServedModel& model) {
  require_tokenizer(model);  // these routes answer with text
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  OpenAiCall call;
  call.is_chat = false;
  GenerateRequest shared = read_common(fields, model, call);
  call.echoes = fields.boolean("echo").value_or(false);
  if (fields.find("logprobs") != nullptr) {
    const auto count = fields.integer("logprobs", 0, Limits::kMaxTopLogprobs);
    call.returns_logprobs = count.has_value();
    call.num_top_logprobs = count.value_or(0);
  }
  shared.return_logprob = call.returns_logprobs;
  shared.top_logprobs_num = call.num_top_logprobs;
  if (call.echoes && call.returns_logprobs) shared.logprob_start_len = 0;
  fields.refuse("suffix", "is not supported");
  if (const auto best_of = fields.integer("best_of", 1, Limits::kMaxN)) {
    if (static_cast<std::size_t>(*best_of) != call.n)
      fields.note("best_of", "is not supported beyond n");
  }
  const auto max_tokens =
      fields.integer("max_tokens", 0, Limits::kMaxTokens).value_or(kCompletionMaxTokens);
  std::vector<Prompt> prompts = read_completion_prompts(fields, model);
  refuse_unknown_names(fields, kCompletionFields);
  add_requests(call, shared, std::move(prompts), max_tokens, model, problems);
  return call;
}

}  // namespace slime::engine
