#pragma once

/// Room for a checkpoint on a disk that is nearly full.
///
/// Older checkpoints are removed for a new one only where that makes the room that lacks, the oldest
/// first, and never the newest whole one.

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace slime::train {

/// A checkpoint that the system refused to write; nothing of it is left. What it says is for a run's user.
class CheckpointUnwritten : public ConfigError {
 public:
  CheckpointUnwritten(const std::string& what, std::error_code reason)
      : ConfigError(what), reason_(reason) {}
  std::error_code reason() const { return reason_; }

 private:
  std::error_code reason_;
};

/// The same of one that did not fit.
class DiskFull : public CheckpointUnwritten {
 public:
  DiskFull(const std::string& what, std::error_code reason, uint64_t written)
      : CheckpointUnwritten(what, reason), written_bytes_(written) {}
  /// Of it, until there was no room.
  uint64_t written_bytes() const { return written_bytes_; }

 private:
  uint64_t written_bytes_;
};

/// That all files and folders below a folder take of the disk, itself included.
uint64_t bytes_below(const std::filesystem::path& folder);

/// What the next checkpoint takes, about: the size of the newest one under `root`; 0: there is none.
uint64_t expected_checkpoint_bytes(const std::filesystem::path& root);

/// What lacks for it by the file system's word; 0: nothing, or that is not known.
uint64_t missing_checkpoint_bytes(const std::filesystem::path& root);

/// What lacked for one of which so much could be written, about: a little less than the rest of it, so
/// that one of the same size makes room.
uint64_t missing_checkpoint_bytes(uint64_t expected_bytes, uint64_t written_bytes);

/// Removes committed checkpoints under `root`, the oldest first, until `missing_bytes` more are free.
/// The newest whole one and those after it stay. Where that is not enough none is removed.
/// Returns their names; empty: no room was made.
std::vector<std::string> make_room_for_checkpoint(const std::filesystem::path& root,
                                                  uint64_t missing_bytes);

}  // namespace slime::train
