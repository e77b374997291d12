#pragma once

/// The bytes of a file of rows in blocks, unpacked where its name ends in .gz or .zst.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "buffer/arrow_rows.h"

namespace slime::buffer {

class FileBytes {
 public:
  /// Throws ConfigError when the file cannot be opened.
  explicit FileBytes(const std::filesystem::path& path);

  /// Replaces `block` by the next bytes; empty: the end. Throws ConfigError on a read error.
  void next(std::string& block);

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::unique_ptr<PackedBytes> packed_;
};

}  // namespace slime::buffer
