#pragma once

/// Disk reserve of a folder: blocks that are given up when the disk is full, so that its small files
/// (metrics, ledger, timeline) can still be finished.
///
/// The reserve is a hidden file in the folder. A writer that finds the disk full releases it and
/// writes again; whoever has the folder sees later that it is gone, and ends its work.

#include <cstdint>
#include <filesystem>

namespace slime {

/// Whether an errno says that there is no room: the disk is full, or a quota is.
bool says_full(int error);

/// Makes it: 4 MiB, or a sixteenth of what is free. Returns whether there is one now.
bool keep_reserve(const std::filesystem::path& folder);
bool has_reserve(const std::filesystem::path& folder);
void remove_reserve(const std::filesystem::path& folder);

/// Gives up the reserve of the folder that `file` lies in, or of the one above. Returns whether there
/// was one: then what could not be written is worth another try.
bool release_reserve_for(const std::filesystem::path& file);

}  // namespace slime
