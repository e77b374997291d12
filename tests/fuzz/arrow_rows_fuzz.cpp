// Bytes as a Parquet, Arrow or CSV file, which the first of them chooses, or as packed lines: rows of JSON, or a
// ConfigError. Without the library that reads them (buffer/arrow_rows.h) there is nothing to test, and that is
// said once.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "buffer/arrow_rows.h"
#include "core/error.h"
#include "core/json.h"

using namespace slime;

namespace {

bool has_library() {
  try {
    buffer::require_arrow_library();
    return true;
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const bool kHasLibrary = has_library();
  if (!kHasLibrary || size == 0) return 0;
  static const char* const kForms[] = {"parquet", "arrow", "csv", "csv.gz", "csv.zst", "gz", "zst"};
  const std::string form = kForms[data[0] % std::size(kForms)];
  const int descriptor = ::memfd_create("fuzz", 0);
  if (::write(descriptor, data + 1, size - 1) == static_cast<ssize_t>(size - 1)) {
    const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
    try {
      if (form == "gz" || form == "zst") {
        buffer::PackedBytes bytes(path, form);
        std::string block(4096, '\0');
        for (int i = 0; i < 64 && bytes.read(block.data(), block.size()) > 0; ++i) continue;
      } else {
        if (form == "parquet") buffer::count_arrow_rows(path, form);
        buffer::read_arrow_rows(path, form, 0, 64, [](std::string_view row) {
          if (!parse_json(row, "row").is_object()) std::abort();
          return true;
        });
      }
    } catch (const ConfigError&) {  // the expected answer to most inputs
    }
  }
  ::close(descriptor);
  return 0;
}
