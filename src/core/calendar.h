#pragma once

/// Local date and time, for chat templates that tell the model today's date.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace slime {

/// Date and time of day where this machine is; `unix_seconds` as Clock gives them.
std::chrono::local_seconds local_time(double unix_seconds);

/// "2026-01-31"
std::string to_date_text(std::chrono::local_days date);

/// Reads that form, and no other; none for a date that does not exist.
std::optional<std::chrono::local_days> parse_date_text(std::string_view text);

}  // namespace slime
