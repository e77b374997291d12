#pragma once

/// The values of a .json file, one after the other: the elements of a list, or objects that follow one another
/// on lines or across them. Only their ends are found here; what they say is parsed by who reads the
/// row.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "buffer/file_bytes.h"

namespace slime::buffer {

class JsonValues {
 public:
  /// Throws ConfigError when the file cannot be opened.
  explicit JsonValues(const std::filesystem::path& path);

  /// The text of the next value; empty at the end. Throws ConfigError on a read error, for a value
  /// of more than 64 MiB, and for a file that is no list and no objects, or ends within one.
  std::optional<std::string> next();

 private:
  std::optional<char> peek();
  char take();
  void skip_blanks();
  std::string take_value();
  [[noreturn]] void refuse(const std::string& what) const;

  std::filesystem::path path_;
  FileBytes bytes_;
  std::string block_;
  std::size_t position_ = 0;  // in block_
  int64_t num_values_ = 0;
  bool has_begun_ = false, is_list_ = false, is_over_ = false;
};

}  // namespace slime::buffer
