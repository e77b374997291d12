#pragma once

/// Check that a schema has a value that ends.

#include "core/json.h"

namespace slime::text {

/// False where every value holds another one of the same kind, as {"next": {"next": ...}} does. `schema`
/// and `definitions` are as read_schema() writes them.
bool has_finite_value(const json::object& schema, const json::object& definitions);

}  // namespace slime::text
