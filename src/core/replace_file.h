#pragma once

/// Files that readers see whole or not at all.

#include <filesystem>
#include <string_view>

namespace slime {

/// Writes `text` beside `path`, then renames it over `path`. Not synced: after a power cut the old
/// file may be back. Throws ConfigError with path and reason (no space, no permission, no such
/// folder), with nothing left behind.
void replace_file(const std::filesystem::path& path, std::string_view text);

/// What a file, or the entries of a folder, hold is on the disk when this returns. A path that is not
/// there is skipped. Throws ConfigError with path and reason.
void sync_path(const std::filesystem::path& path);

}  // namespace slime
