#pragma once

/// A write(2) that raises no signal.

#include <sys/types.h>

#include <string_view>

namespace slime::sandbox {

/// write(2) without the signal of a pipe that nobody reads, which would end this program.
ssize_t write_quietly(int descriptor, std::string_view bytes);

}  // namespace slime::sandbox
