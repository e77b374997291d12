#pragma once

/// Interface between the program and the shared library `libslime_parquet.so`. The library is the
/// only place that sees Arrow; it is loaded when a .parquet path is given, so that the program
/// starts, and is built, without it.

#include <cstddef>
#include <cstdint>

extern "C" {

/// One row as a JSON object; false ends the reading.
using SlimeParquetRow = bool (*)(void* context, const char* json, std::size_t size);

/// Number of rows. Returns null, or what is wrong (valid until the thread's next call).
using SlimeParquetCount = const char* (*)(const char* path, int64_t* num_rows);

/// Rows [first, last) in order; row groups outside are not read. Returns as above.
using SlimeParquetRead = const char* (*)(const char* path, int64_t first, int64_t last,
                                         SlimeParquetRow on_row, void* context);

}  // extern "C"

inline constexpr const char* kSlimeParquetCount = "slime_parquet_count";
inline constexpr const char* kSlimeParquetRead = "slime_parquet_read";
