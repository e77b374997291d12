#pragma once

/// Standard output of a command: what a full disk loses is an error, what a reader does not want is none.

#include <string_view>

namespace slime::cli {

/// Writes at once. Throws std::system_error where it cannot.
void write_out(std::string_view text);

/// A flush of the buffer. Throws std::system_error where that has failed, and
/// std::runtime_error where an earlier write has; not where the reader has closed, who misses nothing.
void require_written();

}  // namespace slime::cli
