#include "engine/http/chat_fields.h"

#include <optional>

#include "engine/chat/thinking.h"
#include "engine/http/generate_request.h"

namespace slime::engine {
namespace {

void read_template_options(const FieldReader& fields, ChatRequest& request) {
  json::object& options = request.template_options;
  if (const json::object* given = fields.object("chat_template_kwargs")) {
    for (const auto& [key, value] : *given) options.emplace(key, value);
  }
  if (const json::array* documents = fields.array("documents")) options["documents"] = *documents;
  if (const auto effort = fields.text("reasoning_effort", 64))
    set_reasoning_effort(*effort, options);
}

}  // namespace

void read_chat_fields(const FieldReader& fields, const ServedModel& model, OpenAiForm& form,
                      ChatRequest& request) {
  read_openai_fields(fields, model, form, request.engine);
  const auto flag = [&](const char* name, bool& target) {
    target = fields.boolean(name).value_or(target);
  };
  flag("parallel_tool_calls", request.parallel_tool_calls);
  flag("continue_final_message", request.continues_final_message);
  flag("add_generation_prompt", request.adds_generation_prompt);
  flag("add_special_tokens", request.adds_special_tokens);
  flag("separate_reasoning", request.separates_reasoning);
  flag("stream_reasoning", request.streams_reasoning);
  flag("include_reasoning", form.includes_reasoning);
  request.skip_special_tokens = fields.boolean("skip_special_tokens");
  request.truncate_prompt_tokens =
      fields.integer("truncate_prompt_tokens", 1, RequestLimits::kMaxTokens);
  read_template_options(fields, request);
  refuse_unsupported(fields, kChats, kOpenAi);
}

}  // namespace slime::engine
