#pragma once

/// The functions every chat template can call: range, dict, namespace, joiner, cycler,
/// raise_exception, strftime_now.

#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace slime::text::jinja {

std::vector<std::pair<std::string_view, Value>> global_functions();

}  // namespace slime::text::jinja
