#pragma once

/// Files of a /proc folder, and numbers in them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slime::sandbox {

/// Entries of `folder`, or of the folder `name` in it, whose names are numbers.
std::vector<std::string> numbered_in(int folder, const std::string& name = ".");

/// "" for a process that has ended; at most `limit_bytes` of it.
std::string read_file(int folder, const std::string& name,
                      std::size_t limit_bytes = std::size_t{64} << 20);

/// The number behind spaces at `at`; 0: there is none.
int64_t number_at(std::string_view text, std::size_t at, int base = 10);

/// The number behind `name`; 0: it is not there.
int64_t number_behind(std::string_view text, std::string_view name);

}  // namespace slime::sandbox
