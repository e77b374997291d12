#pragma once

/// A file that only grows at its end: what the ledger writes to. Behind an interface so that a
/// simulation can put a disk under it that is full, tears writes or forgets what was not synced.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/expected.h"

namespace slime::buffer {

/// Used by one thread at a time. Errors say why, for a person, without the file's name.
class AppendFile {
 public:
  virtual ~AppendFile() = default;

  /// After an error a part of the bytes may be in the file.
  virtual Expected<void> append(std::string_view bytes) = 0;
  /// What was appended survives a power failure.
  virtual Expected<void> sync() = 0;
  /// Cuts the file to its first `size` bytes.
  virtual Expected<void> truncate(int64_t size) = 0;
  virtual Expected<int64_t> size() const = 0;
};

/// So that a file that was created or renamed is still there after a power failure.
void sync_directory(const std::filesystem::path& file);

/// Creates the file, durably. Throws ConfigError when it is there already, or cannot be created.
std::unique_ptr<AppendFile> create_append_file(const std::filesystem::path& path);

/// Throws ConfigError when the file cannot be opened.
std::unique_ptr<AppendFile> open_append_file(const std::filesystem::path& path);

}  // namespace slime::buffer
