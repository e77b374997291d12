#pragma once

/// --custom-loss-library: a loss of the user's as a shared library with the C interface of
/// include/slime/loss.h, called in this process.

#include <string>

#include "core/json.h"
#include "train/users_loss.h"

namespace slime::plugin {

/// Loads it; it stays. `flags`: what the library may ask for by name. Throws ConfigError for a file that
/// is no such library. The function throws plugin::FunctionError.
train::LossFn load_loss_library(const std::string& file, json::object flags);

}  // namespace slime::plugin
