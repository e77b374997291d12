#pragma once

/// Rows of a Parquet file as JSON texts, through the shared library `libslime_parquet.so`
/// (buffer/parquet/parquet_library.h), which is built where Arrow is found and lies beside the
/// program.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace slime::buffer {

/// Throws ConfigError that says how to get the library when it is not there; does nothing else.
void require_parquet_library();

/// Throws ConfigError starting with the path for a file that cannot be read or is no Parquet.
int64_t count_parquet_rows(const std::filesystem::path& path);

/// Calls `on_row` with each row in [first, last), in order, until it returns false. Holds no more
/// than a batch of rows. An exception of `on_row` ends the reading and passes through. Throws as
/// above.
void read_parquet_rows(const std::filesystem::path& path, int64_t first, int64_t last,
                       const std::function<bool(std::string_view json)>& on_row);

}  // namespace slime::buffer
