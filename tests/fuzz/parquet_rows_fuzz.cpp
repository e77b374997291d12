// Bytes as a Parquet file: rows of JSON, or a ConfigError. Without the library that reads them
// (buffer/parquet_file.h) there is nothing to test, and that is said once.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "buffer/parquet_file.h"
#include "core/error.h"
#include "core/json.h"

using namespace slime;

namespace {

bool has_library() {
  try {
    buffer::require_parquet_library();
    return true;
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const bool kHasLibrary = has_library();
  if (!kHasLibrary) return 0;
  const int descriptor = ::memfd_create("fuzz", 0);
  if (::write(descriptor, data, size) == static_cast<ssize_t>(size)) {
    const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
    try {
      const int64_t num_rows = buffer::count_parquet_rows(path);
      buffer::read_parquet_rows(path, 0, std::min<int64_t>(num_rows, 64), [](std::string_view row) {
        if (!parse_json(row, "row").is_object()) std::abort();
        return true;
      });
    } catch (const ConfigError&) {  // the expected answer to most inputs
    }
  }
  ::close(descriptor);
  return 0;
}
