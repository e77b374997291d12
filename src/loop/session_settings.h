#pragma once

/// Settings of a command that finds engines which an earlier one left (--rollout-session-id): which of
/// them may differ.

#include <string>
#include <string_view>

#include "core/json.h"

namespace slime::loop {

/// Whether a trainer may have another value of this flag than the one before it: places, length and
/// intervals of the run, the trainer's layout, micro-batches and memory, what is shown.
bool may_differ_in_session(std::string_view flag);

/// The same where the run has no checkpoint yet, and begins again: it begins where it began.
bool may_differ_before_checkpoint(std::string_view flag);

/// Throws ConfigError with all differences that may not be. Both are of settings_of()
/// (loop/changed_settings.h): `left` of the engines' first trainer.
void check_session_settings(const json::object& left, const json::object& now,
                            const std::string& id);

}  // namespace slime::loop
