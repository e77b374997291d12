#pragma once

/// The user_metadata of a request: texts by name, which clients give a model and read again from its training run.
/// Recipes keep the name of their renderer there.

#include "core/field_reader.h"

namespace slime::tinker {

/// Texts; what is none is its JSON, and null is left out. Throws ConfigError for more than 64 KiB of them.
json::object read_user_metadata(const FieldReader& body);

}  // namespace slime::tinker
