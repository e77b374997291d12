#pragma once

/// Interface between the program and the shared library `libslime_arrow.so`, the only place that
/// sees Arrow. It is loaded when a file needs it, so that the program starts, and is built, without it.

#include <cstddef>
#include <cstdint>

extern "C" {

/// One row as a JSON object; false ends the reading.
using SlimeRow = bool (*)(void* context, const char* json, std::size_t size);

/// `form`: "parquet", "arrow" (an IPC file or stream) or "csv"; the last may be packed, "csv.gz". Functions
/// return null, or what is wrong (valid until the thread's next call).
///
/// Number of rows.
using SlimeRowsCount = const char* (*)(const char* path, const char* form, int64_t* num_rows);

/// Rows [first, last) in order; Parquet's row groups outside are not read.
using SlimeRowsRead = const char* (*)(const char* path, const char* form, int64_t first,
                                      int64_t last, SlimeRow on_row, void* context);

/// The unpacked bytes of a file. `packing`: "gz" or "zst". A stream that was opened is closed once.
using SlimeBytesOpen = const char* (*)(const char* path, const char* packing, void** stream);
/// As many as there are, at most `size`; 0: the end.
using SlimeBytesRead = const char* (*)(void* stream, char* bytes, std::size_t size,
                                       std::size_t* count);
using SlimeBytesClose = void (*)(void* stream);

}  // extern "C"

inline constexpr const char* kSlimeRowsCount = "slime_rows_count";
inline constexpr const char* kSlimeRowsRead = "slime_rows_read";
inline constexpr const char* kSlimeBytesOpen = "slime_bytes_open";
inline constexpr const char* kSlimeBytesRead = "slime_bytes_read";
inline constexpr const char* kSlimeBytesClose = "slime_bytes_close";
