#pragma once

/// Chat request in the form that all protocols share: what a client asked for, before the model's
/// template sees it.
///
/// Protocols translate their JSON into it and know nothing of templates, marks or parsers;
/// prepare_chat() (engine/chat/chat_prompt.h) makes requests of the engine of it, and ChatChoice
/// (engine/chat/chat_choice.h) reads what they answer.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/client.h"

namespace slime::engine {

/// Whether tools may, must or must not be called.
struct ToolChoice {
  enum class Mode : uint8_t {
    kAuto,
    kNone,      // the model does not see the tools, and calls are content
    kRequired,  // the output is at least one call
  };
  Mode mode = Mode::kAuto;
  /// The tools that may be called, which are all that the model sees; empty: all of the request's.
  /// A named tool is kRequired with one name.
  std::vector<std::string> names;
};

struct ChatRequest {
  /// As chat completions write them, and as clients send them: role, content (text, null, a list of
  /// parts), reasoning_content, tool_calls, tool_call_id, name. normalised_messages()
  /// (engine/chat/messages.h) checks them and gives them the form that the template takes.
  json::array messages;
  /// {"type": "function", "function": {"name", "description", "parameters"}} or
  /// {"type": "custom", "custom": {"name", "description", "format"}}.
  json::array tools;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;

  /// Variables of the template: enable_thinking, reasoning_effort, ...
  json::object template_options;
  /// The last message is of the assistant and goes on.
  bool continues_final_message = false;
  /// The prompt ends with the header of an assistant message; not with continues_final_message.
  bool adds_generation_prompt = true;
  /// The tokenizer adds its BOS to what the template wrote, which mostly has one.
  bool adds_special_tokens = false;
  /// The prompt, in place of what the template makes of the messages.
  std::optional<std::vector<TokenId>> input_ids;
  /// Only the last so many tokens of the prompt.
  std::optional<int64_t> truncate_prompt_tokens;

  /// Thoughts are taken out of the content.
  bool separates_reasoning = true;
  /// False: thoughts come as one delta, when they have ended.
  bool streams_reasoning = true;
  /// Nothing: false while tools may be called, since unknown marks of calls may be special tokens.
  std::optional<bool> skip_special_tokens;

  /// Sampling parameters, grammar, salt, rid, log-probs. Its prompt and max_new_tokens are set by
  /// prepare_chat().
  GenerateRequest engine;
  std::optional<int64_t> max_tokens;  // nothing: up to the end of the context
  std::size_t n = 1;
};

}  // namespace slime::engine
