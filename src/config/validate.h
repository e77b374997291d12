#pragma once

#include "config/parse_flags.h"

namespace slime::config {

/// Applies derived defaults and checks all rules between flags (spec section 20, reference
/// slime.md 3.2). Throws ConfigError with one line per problem and contradiction: key, value, what
/// would work.
void complete_and_validate(ParsedFlags& flags);

}  // namespace slime::config
