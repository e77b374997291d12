#pragma once

/// The flag table as JSON records, for `slime train --help-json`.

#include "core/json.h"

namespace slime::config {

/// Of each flag: name, type ("switch", "integer", "number", "text"), whether it takes several
/// values, default (null: none), allowed words (empty: any), meaning, and status as docs/flags.md
/// has it.
json::array flag_records();

}  // namespace slime::config
