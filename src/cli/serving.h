#pragma once

/// Common parts of the commands that serve HTTP.

#include <signal.h>

#include <string>

namespace slime::cli {

/// The first line of `file`, or the environment's `variable`; empty: no key. Throws ConfigError.
std::string read_key(const std::string& file, const char* variable);

/// Blocks the signals that end a server, here and in every thread started later; sigwait takes
/// them. The end of the terminal is one, but not under nohup.
sigset_t block_stop_signals();

/// Ends the process at once at the next of them, for a stop that takes long.
void end_at_next(sigset_t stop_signals);

}  // namespace slime::cli
