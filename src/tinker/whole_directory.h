#pragma once

/// A directory of the store that appears whole or not at all, under the name that a client chose.

#include <cstdint>
#include <filesystem>
#include <functional>

namespace slime::tinker {

/// `fill` writes into a hidden folder beside `directory` and returns what of it takes that name. `bytes`: what it
/// takes of the disk, about. Throws ConfigError in the words of whoever saves by name, with nothing left behind.
void write_whole_directory(
    const std::filesystem::path& directory, uint64_t bytes,
    const std::function<std::filesystem::path(const std::filesystem::path&)>& fill);

}  // namespace slime::tinker
