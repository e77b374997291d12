#pragma once

/// Methods of Python's str, list, tuple and dict. Those that would change their value (append,
/// update, ...) are refused, as in the sandbox that chat templates run in elsewhere: templates
/// build new lists with +.

#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace slime::text::jinja {

/// value.name as something to call; nothing where the type has no such method. A method that would
/// change `value` is Undefined, with the reason.
std::optional<Value> find_method(const Value& value, std::string_view name);

}  // namespace slime::text::jinja
