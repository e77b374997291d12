#pragma once

#include <string>
#include <vector>

#include "config/parse_flags.h"

namespace slime::config {

/// Applies derived defaults and checks all rules between flags (spec section 20, reference
/// slime.md 3.2). Throws ConfigError with one line per problem and contradiction: key, value, what
/// would work.
void complete_and_validate(ParsedFlags& flags);

/// The same on a machine that may lack the run's files: what is not there is noted in `absent`
/// instead of refused, one sentence a path. Files of flags, which parse_flags reads, have to be
/// there.
void complete_and_validate(ParsedFlags& flags, std::vector<std::string>& absent);

}  // namespace slime::config
