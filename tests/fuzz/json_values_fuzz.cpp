// Bytes as a .json file: its values, or a ConfigError. Every value of a file that Boost.JSON takes for a list of
// objects is one of its elements.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/json_values.h"
#include "core/error.h"
#include "core/json.h"

using namespace slime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const int descriptor = ::memfd_create("fuzz", 0);
  if (::write(descriptor, data, size) == static_cast<ssize_t>(size)) {
    std::vector<std::string> found;
    bool is_refused = false;
    try {
      buffer::JsonValues values("/proc/self/fd/" + std::to_string(descriptor));
      while (auto value = values.next()) found.push_back(std::move(*value));
    } catch (const ConfigError&) {
      is_refused = true;
    }
    const auto whole = try_parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
    const json::array* list = whole ? whole->if_array() : nullptr;
    if (list != nullptr) {
      if (is_refused || found.size() != list->size()) std::abort();
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto value = try_parse_json(found[i]);
        if (!value || *value != (*list)[i]) std::abort();
      }
    }
  }
  ::close(descriptor);
  return 0;
}
