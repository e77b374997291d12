#pragma once

/// Regular files of others: opened without waiting, refused by name where something else is in their place.
///
/// To open a pipe is to wait for its writer, and a device may have no end.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace slime {

struct RegularFile {
  Descriptor descriptor;
  std::uint64_t num_bytes = 0;  // when it was opened
};

/// For reading; links are followed. Throws ConfigError with path and reason: absent, not permitted, or a directory, a
/// pipe, a socket or a device. `of_many`: what to add where the process has too many open files.
RegularFile open_regular_file(const std::filesystem::path& path, std::string_view of_many = "");

/// All bytes of one. Throws ConfigError for the same reasons, and where it has more than `limit_bytes`:
/// "PATH: 70 bytes of JSON, more than the limit of 64", with `kind` "JSON".
std::string read_regular_file(const std::filesystem::path& path, std::size_t limit_bytes,
                              std::string_view kind);

}  // namespace slime
