#pragma once

/// Switches of chat templates for thinking, as variables of the template.

#include <string_view>

#include "core/json.h"

namespace slime::engine {

/// `enable_thinking` and `thinking`, the names that templates read; one that is there stays. What a
/// template does not read changes nothing.
void switch_thinking(bool is_on, json::object& template_options);

/// `reasoning_effort`; "none" switches thinking off.
void set_reasoning_effort(std::string_view effort, json::object& template_options);

}  // namespace slime::engine
