#pragma once

/// Lines of a file, packed or not, read in blocks, with a limit on their length.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "buffer/file_bytes.h"

namespace slime::buffer {

class LineReader {
 public:
  /// Throws ConfigError when the file cannot be opened.
  explicit LineReader(const std::filesystem::path& path);

  /// The next line that is not blank, without its end (\n or \r\n) and without a byte-order mark;
  /// empty at the end of the file. Throws ConfigError on a read error and on a line longer than 64
  /// MiB.
  std::optional<std::string> next();

  /// Of the line that next() returned last, counted from 1 as editors do.
  int64_t line_number() const { return line_number_; }

  const std::filesystem::path& path() const { return path_; }

 private:
  bool read_line(std::string& line);

  std::filesystem::path path_;
  FileBytes bytes_;
  std::string block_;
  std::size_t position_ = 0;  // in block_
  int64_t line_number_ = 0;
};

}  // namespace slime::buffer
