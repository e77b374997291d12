#pragma once

/// Flags that the user set and that nothing in the run reads.
///
/// Each flag's value records that it was read (config/flag.h). The looks of parsing and validation are
/// forgotten when validation ends; then the run makes every translation of flags into the
/// configurations of its stations, all of them before its first token (loop/translations.h), and
/// --dry-run makes the same. A flag that was set, that no translation has read and that no station
/// reads where it stands (`FlagRow::counts`) has no effect, and is told. Flags that data, checkpoint
/// or rewards ask for are looked at again when the run has its data, and at its end (`ReadWhen`).

#include <string>
#include <vector>

#include "config/parse_flags.h"

namespace slime::config {

/// Validation is over: what it looked at does not count.
void forget_reads(const RunConfig& config);

/// Names of the flags that were set and do not count, those of the critic's role last, each once, in
/// the order in which they were set. Flags that `warnings` tells of are left out.
std::vector<std::string> unread_flags(const ParsedFlags& flags);

/// Behind the translations: a warning for each, and their names in `flags.unread`.
void note_unread_flags(ParsedFlags& flags);

/// When the run has its data and its checkpoint: a sentence for each flag that was set, that they
/// may ask for and do not. None where rows are read while the run trains.
std::vector<std::string> unread_at_start(const ParsedFlags& flags);

/// Flags of `flags.unread`, and of those that the run's data and rewards may ask for, the run
/// has not read to its end either, and what was unknown and ignored, as one line for its end; empty:
/// none.
std::string still_unread(const ParsedFlags& flags);

/// Whether functions of the user's may read any flag, as an attribute of `args`.
bool has_users_code(const RunConfig& config);

}  // namespace slime::config
