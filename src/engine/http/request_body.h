#pragma once

/// The JSON object in a request's body. Its fields are read by core/field_reader.h, which tells a
/// client everything that is wrong at once; nothing is guessed.

#include <string>
#include <string_view>
#include <vector>

#include "core/field_reader.h"
#include "core/json.h"

namespace slime::engine {

/// The request body as an object. Throws ConfigError, also when an object in it has a key twice.
json::object parse_body(std::string_view body);

/// The same of a call that may come without a body: no fields.
json::object parse_optional_body(std::string_view body);

/// Throws ConfigError when there are problems.
void require_none(const std::vector<std::string>& problems);

}  // namespace slime::engine
