#pragma once

/// A directory that appears whole or not at all, and proves later that it still is: the file side
/// of checkpoints.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace slime::train {

/// "iter_0000120"
std::string checkpoint_name(int64_t iteration);

/// Iterations that have a directory under `root`, ascending; complete or not.
std::vector<int64_t> checkpoint_iterations(const std::filesystem::path& root);

/// Those that were written to the end.
std::vector<int64_t> committed_iterations(const std::filesystem::path& root);

/// What latest_checkpointed_iteration.txt says; nothing where it is not there or says no number.
std::optional<int64_t> tracked_iteration(const std::filesystem::path& root);
/// Replaces it, durably.
void set_tracked_iteration(const std::filesystem::path& root, int64_t iteration);

/// Fills a temporary directory through `fill`, adds COMMITTED (file list, sizes, CRC-32C), syncs
/// everything and renames it to root/iter_NNNNNNN, replacing one of that name atomically;
/// then replaces latest_checkpointed_iteration.txt. Leftovers of writers that died are removed
/// first. Whatever `fill` throws passes through, with the temporary directory removed; what the system
/// refuses is CheckpointUnwritten, a full disk DiskFull (train/checkpoint_room.h).
std::filesystem::path write_checkpoint_directory(
    const std::filesystem::path& root, int64_t iteration,
    const std::function<void(const std::filesystem::path&)>& fill);

/// `unfinished` takes the name `final_path`. Whoever follows a link to that name finds what had it before or
/// what has it now, where the file system can exchange names; elsewhere there is none for an instant.
/// Returns where the one before is now, to be removed; empty: there was none. Throws
/// std::filesystem::filesystem_error.
std::filesystem::path put_in_place(const std::filesystem::path& unfinished,
                                   const std::filesystem::path& final_path);

/// What is wrong with a checkpoint directory, compared with its COMMITTED; empty: nothing.
std::string checkpoint_damage(const std::filesystem::path& directory);

/// Removes all but the newest `keep` checkpoints that are committed; 0 keeps all. `written`, the
/// one that was written last, is never removed, even where others have greater iterations: those of
/// a run that went further before it was set back.
void remove_old_checkpoints(const std::filesystem::path& root, int64_t keep,
                            const std::filesystem::path& written);

/// Removes one; a process that dies on the way leaves no damaged one.
void remove_checkpoint(const std::filesystem::path& directory);

/// Removes all checkpoints of `root`, complete or not.
void remove_checkpoints(const std::filesystem::path& root);

}  // namespace slime::train
