#pragma once

/// Rows of Parquet, Arrow and CSV files as JSON texts, and the bytes of packed files, through the shared library
/// `libslime_arrow.so` (buffer/arrow/arrow_library.h), which lies beside the program.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace slime::buffer {

/// Throws ConfigError that says how to get the library when it is not there; does nothing else.
void require_arrow_library();

/// `form`: "parquet", "arrow", "csv", "csv.gz" or "csv.zst". Throws ConfigError starting with the
/// path for a file that cannot be read or is of no such form.
int64_t count_arrow_rows(const std::filesystem::path& path, const std::string& form);

/// Calls `on_row` with each row in [first, last), in order, until it returns false. Holds no more
/// than a batch of rows. An exception of `on_row` ends the reading and passes through. Throws as
/// above.
void read_arrow_rows(const std::filesystem::path& path, const std::string& form, int64_t first,
                     int64_t last, const std::function<bool(std::string_view json)>& on_row);

/// The unpacked bytes of a file, from its beginning to its end.
class PackedBytes {
 public:
  /// `packing`: "gz" or "zst". Throws as above.
  PackedBytes(std::filesystem::path path, const std::string& packing);
  ~PackedBytes();
  PackedBytes(const PackedBytes&) = delete;
  PackedBytes& operator=(const PackedBytes&) = delete;

  /// The next ones, at most `size`; 0: the end. Throws as above.
  std::size_t read(char* bytes, std::size_t size);

 private:
  std::filesystem::path path_;
  void* stream_ = nullptr;
};

}  // namespace slime::buffer
