#include "engine/chat/chat_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "engine/sampling_params.h"
#include "text/messages/call_grammar.h"
#include "text/messages/white_space.h"

namespace slime::engine {
namespace {

/// A grammar of the client as a format of structural tags.
json::object tag_format_of(const GenerateRequest& request) {
  const SamplingParams& sampling = request.sampling;
  if (!sampling.regex.empty()) return {{"type", "regex"}, {"pattern", sampling.regex}};
  if (!sampling.ebnf.empty()) return {{"type", "grammar"}, {"grammar", sampling.ebnf}};
  if (!sampling.json_schema.empty()) {
    json::value schema = parse_json(sampling.json_schema, request.grammar_field);
    if (!schema.is_object() && !schema.is_bool())
      throw ConfigError(request.grammar_field + " must be a JSON schema");
    return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  }
  const json::value tag = parse_json(sampling.structural_tag, request.grammar_field);
  const json::object* object = tag.if_object();
  const json::value* format = object == nullptr ? nullptr : object->if_contains("format");
  if (format == nullptr || !format->is_object()) {
    throw ConfigError(
        request.grammar_field +
        " has no member format, and only one that has can be joined with calls of tools");
  }
  return format->get_object();
}

void put_grammar(json::object grammar, std::string field, GenerateRequest& request) {
  SamplingParams& sampling = request.sampling;
  for (std::string* other : {&sampling.json_schema, &sampling.regex, &sampling.ebnf})
    other->clear();
  sampling.structural_tag = json_text(grammar);
  request.grammar_field = std::move(field);
}

bool has_strict(const json::array& tools) {
  return std::ranges::any_of(tools, [](const json::value& tool) {
    const json::value* strict = tool.as_object().at("function").as_object().if_contains("strict");
    return strict != nullptr && strict->is_bool() && strict->get_bool();
  });
}

void force_calls(const ChatRequest& request, const text::CallGrammar& calls, bool is_own,
                 GenerateRequest& engine) {
  if (is_own) {
    throw ConfigError(
        fmt::format("tool_choice asks for a call, and {} is a grammar; a request may "
                    "have one",
                    grammars_of(request.engine.sampling).front()));
  }
  if (calls.syntax == nullptr) {
    throw ConfigError(
        "tool_choice must be \"auto\" or \"none\": the form of this model's calls is not known, so "
        "none can be forced; --tool-call-parser names it");
  }
  put_grammar(forced_calls(calls), "tools", engine);
}

std::string_view spelling_of(const text::ReasoningFormat& format, text::MarkRole role) {
  const auto mark = std::ranges::find(format.marks, role, &text::Mark::role);
  return mark == format.marks.end() ? std::string_view() : mark->spelling;
}

/// Variables of templates that say so.
bool is_switched_off(const json::object& options) {
  return std::ranges::any_of(std::initializer_list<std::string_view>{"enable_thinking", "thinking"},
                             [&](std::string_view name) {
                               const json::value* value = options.if_contains(name);
                               return value != nullptr && value->is_bool() && !value->get_bool();
                             });
}

FreeThoughts thoughts_of(const ChatRequest& request, const OutputFrame& frame, bool is_own) {
  const text::ReasoningFormat* format = frame.format.reasoning();
  FreeThoughts thoughts;
  if (format == nullptr) return thoughts;
  thoughts.are_open = frame.tail == text::PromptTail::kReasoning;
  if (format->is_harmony) {
    if (thoughts.are_open) thoughts.closing = "<|start|>assistant";
    return thoughts;
  }
  const std::string_view closing = spelling_of(*format, text::MarkRole::kThinkClose);
  thoughts.closing = closing.empty() ? "</think>" : closing;  // of the form without marks
  const bool is_behind =
      !closing.empty() && text::without_trailing_white_space(frame.prompt).ends_with(closing);
  const bool may_open = !is_own && !thoughts.are_open && !is_behind &&
                        !request.continues_final_message &&
                        !is_switched_off(request.template_options);
  if (may_open) thoughts.opening = spelling_of(*format, text::MarkRole::kThinkOpen);
  return thoughts;
}

}  // namespace

void set_grammar(ChatRequest& request, const OutputFrame& frame) {
  GenerateRequest& engine = request.engine;
  const bool has_grammar = !grammars_of(engine.sampling).empty();
  const bool is_own = has_grammar && engine.grammar_field.empty();
  const bool is_harmony = frame.format.calls() != nullptr && frame.format.calls()->is_harmony;
  const text::CallGrammar calls{
      .syntax = frame.format.call_syntax(),
      .tools = &frame.tools.shown,
      .parallel = request.parallel_tool_calls,
      .binds_strict_alone = request.tool_choice.mode != ToolChoice::Mode::kRequired,
      .is_harmony = is_harmony};
  const bool may_call = calls.syntax != nullptr && !frame.tools.shown.empty();
  if (request.tool_choice.mode == ToolChoice::Mode::kRequired) {
    force_calls(request, calls, is_own, engine);
  } else if (has_grammar && !is_own) {
    if (may_call) {
      put_grammar(calls_or(calls, tag_format_of(engine)), engine.grammar_field, engine);
    } else if (is_harmony) {
      put_grammar(text::harmony_answer(tag_format_of(engine)), engine.grammar_field, engine);
    }
  } else if (!has_grammar && may_call && has_strict(frame.tools.shown)) {
    put_grammar(bound_calls(calls), "tools", engine);
  }
  if (!grammars_of(engine.sampling).empty()) engine.thoughts = thoughts_of(request, frame, is_own);
}

}  // namespace slime::engine
