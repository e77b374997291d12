#pragma once

/// Forms of messages that depend on the whole conversation, or on the template alone.
///
/// Messages here are normalised (engine/chat/messages.h): a role, content that is text or a list of
/// text parts, calls that are objects.

#include <optional>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/chat/template_traits.h"

namespace slime::engine {

/// The text of a part that holds text; nothing for images, sound and files.
std::optional<std::string_view> text_of_part(const json::value& part);

/// The parts as the template takes them: text parts, or one text, in which they are joined by a
/// space, as SGLang does.
json::value joined_parts(const std::vector<std::string_view>& texts, const TemplateTraits& traits);

/// Brings results of tools into the order of the calls that they answer, where all ids match:
/// templates write them by position.
void order_tool_results(json::array& messages);

/// Gives the messages the forms that the template takes: system messages, content beside calls, ids
/// of calls, content as text or as parts.
void fit_to_template(json::array& messages, const TemplateTraits& traits);

}  // namespace slime::engine
