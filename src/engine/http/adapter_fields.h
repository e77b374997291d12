#pragma once

/// The adapter that a request names: `lora_path`, or `model`, as "base:name" or the name alone.

#include <string>
#include <string_view>

#include "engine/http/served_model.h"

namespace slime::engine {

/// The loaded adapter of this name; "" is none. Throws ApiError 404 with the names that there are.
std::string adapter_named(const ServedModel& model, std::string_view name);

/// The adapter that `model` of a request names; "": the served model itself, which has any other name where
/// the server has no adapters. Throws ApiError 404.
std::string adapter_of_model(const ServedModel& model, std::string_view word);

}  // namespace slime::engine
