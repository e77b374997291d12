#pragma once

/// Logs of bounded size: what grows beyond a limit is set aside as NAME.1, in the place of what was set aside
/// before. A log and the one before it together have at most twice the limit.

#include <cstdint>
#include <filesystem>

namespace slime {

inline constexpr std::uintmax_t kLogLimitBytes = std::uintmax_t{64} << 20;

/// Of a file that this process alone appends to, and opens again behind this. Errors are passed over: a
/// log never ends a run.
void rotate_log(const std::filesystem::path& file, std::uintmax_t limit_bytes = kLogLimitBytes);

/// Of a file that another process appends to and holds open with O_APPEND: copied, then emptied. What it
/// writes in between is lost.
void rotate_log_of_others(const std::filesystem::path& file,
                          std::uintmax_t limit_bytes = kLogLimitBytes);

/// Of the file that is this process's standard output and error, where it is one.
void rotate_own_output(std::uintmax_t limit_bytes = kLogLimitBytes);

}  // namespace slime
