#pragma once

/// Commit records of checkpoints: SAVE/rollout/committed_<n>.json, as slime 0.4.0 has them. One is
/// written behind its checkpoint and behind latest_checkpointed_iteration.txt, once, and goes with the
/// checkpoint. What a run goes on from is COMMITTED in the checkpoint (train/checkpoint.h); this is a
/// file for --load, and for other programs:
///
/// As --load it has to agree with its checkpoint.
///
///   {"version": 1, "rollout_id": 7, "resumable": true, "weight_version": 8, "run_id": "rollout",
///    "rollout_data_dir": "...", "files": {"iter_0000007/run.json": {"size": 812, "sha256": "..."}}}
///
/// Files with a sha256 are those that end in .json.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/json.h"

namespace slime::train {

/// Folder of the records, and of what users' data sources save.
std::filesystem::path rollout_folder(const std::filesystem::path& root);
std::filesystem::path commit_record(const std::filesystem::path& root, int64_t iteration);

/// The iteration that a file's name says; nothing for names of other files.
std::optional<int64_t> iteration_of_record(const std::filesystem::path& path);

/// Of the checkpoint root/iter_NNNNNNN, whole. `more`: members beside its files. Durable when this
/// returns. Throws ConfigError when there is one already.
void write_commit_record(const std::filesystem::path& root, int64_t iteration,
                         const json::object& more);

/// The damage of a record whose checkpoint is in its folder, in words: its form, the iteration that it says,
/// files that are of another size or content. Empty: nothing. Reads files that have a sha256.
std::string commit_record_damage(const std::filesystem::path& root, int64_t iteration);

/// Removes the records of iterations whose checkpoints are gone, and those from `first` on.
void remove_commit_records(const std::filesystem::path& root,
                           std::optional<int64_t> first = std::nullopt);

}  // namespace slime::train
