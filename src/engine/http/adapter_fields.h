#pragma once

/// The adapter that a request names: `lora_path`, or `model`, as "base:name" or the name alone.

#include <string_view>

#include "engine/client.h"
#include "engine/http/served_model.h"

namespace slime::engine {

/// `request` takes the loaded adapter of this name; "" is none. Its copies, such as the other samples of its call,
/// take the same version. Throws ApiError 404 with the names that there are.
void take_adapter_named(const ServedModel& model, std::string_view name, GenerateRequest& request);

/// The same of what `model` of a request names: also the served model itself, which has any other name where the
/// server has no adapters. Throws ApiError 404.
void take_adapter_of_model(const ServedModel& model, std::string_view word,
                           GenerateRequest& request);

}  // namespace slime::engine
