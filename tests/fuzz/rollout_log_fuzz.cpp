// Bytes as a body of /buffer/write, and as the log of a rollout buffer: after an odd first byte every
// line of it gets its checksum. What a log leads to has a log of its own that leads to the same.

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "buffer/rollout_log.h"
#include "core/crc32c.h"
#include "core/error.h"

using namespace slime;

namespace {

std::string with_checksums(std::string_view input) {
  std::string lines;
  while (!input.empty()) {
    const std::size_t end = input.find('\n');
    const std::string_view text = input.substr(0, end);
    lines += fmt::format("{:08x} {}", crc32c(text), text);
    if (end == std::string_view::npos) break;
    lines += '\n';
    input.remove_prefix(end + 1);
  }
  return lines;
}

/// False when the log is refused.
bool replay(const std::string& bytes, buffer::RolloutGroups& groups) {
  const int descriptor = ::memfd_create("fuzz", 0);
  bool is_taken = false;
  if (::write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) {
    try {
      buffer::replay_rollout_log("/proc/self/fd/" + std::to_string(descriptor), groups);
      is_taken = true;
    } catch (const ConfigError&) {
    }
  }
  ::close(descriptor);
  return is_taken;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (const auto item = buffer::parse_rollout_item(input)) {
    const auto again = buffer::parse_rollout_item(item->text);
    if (!again || again->instance != item->instance || again->uid != item->uid) std::abort();
  }
  buffer::RolloutGroups groups(2);
  if (!replay(data[0] % 2 == 1 ? with_checksums(input) : std::string(input), groups)) return 0;
  std::string lines;
  for (const buffer::RolloutRecord& record : buffer::records_of(groups))
    lines += buffer::to_rollout_line(record);
  buffer::RolloutGroups same(2);
  if (!replay(lines, same)) std::abort();
  if (same.num_items() != groups.num_items() || same.num_whole() != groups.num_whole() ||
      same.num_given() != groups.num_given() || same.answers().size() != groups.answers().size())
    std::abort();
  return 0;
}
