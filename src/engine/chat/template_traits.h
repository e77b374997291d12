#pragma once

/// Traits of a chat template: the forms of a message that it takes.
///
/// They are found out when a model is loaded, by rendering probe conversations. There is no table of
/// model families.

#include <cstdint>
#include <functional>
#include <string>

#include "core/json.h"

namespace slime::engine {

/// Ids of past calls and of their results: those of a client may come from another model.
enum class CallIdForm : uint8_t {
  kAny,
  kNineCharacters,  // letters and digits: others are refused by the template
  kNumbered,        // "functions.NAME:N", which the template writes out
};

struct TemplateTraits {
  // Arguments of past calls. Where both are true they go in as the client wrote them.
  bool takes_text_arguments = true;     // written as they are
  bool takes_object_arguments = false;  // written as JSON, or key by key

  /// A call counts only where its message's content is null; elsewhere null becomes "".
  bool wants_null_beside_calls = false;
  /// Text beside calls hides them: the text becomes a message of its own, in front.
  bool loses_calls_beside_text = false;
  CallIdForm call_ids = CallIdForm::kAny;

  // Content.
  bool takes_parts = false;  // a list of parts is written as their texts
  bool takes_text = true;    // false: only a list of parts is

  // Roles.
  bool knows_developer = false;     // else it is a system message
  bool takes_system = true;         // else its text begins the first message of the user
  bool takes_later_system = false;  // else all of them are one message, the first
};

/// Messages and the template's options ("tools", "add_generation_prompt", ...) to the prompt's text.
/// Throws ConfigError where the template refuses them.
using RenderChatFn =
    std::function<std::string(const json::array& messages, const json::object& options)>;

TemplateTraits probe_template(const RenderChatFn& render);

}  // namespace slime::engine
