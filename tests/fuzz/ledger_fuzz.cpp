// Bytes as a ledger. After an odd first byte every line gets its checksum, so that what is behind
// the checksum is reached.

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "buffer/ledger.h"
#include "buffer/ledger_audit.h"
#include "core/crc32c.h"

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

/// An audit throws for nothing that it reads, and what has no problem opens as what it said.
void read_as_ledger(const std::string& path) {
  const buffer::LedgerAudit audit = buffer::audit_ledger(path);
  const buffer::LedgerSummary& prompts = audit.prompts;
  const int64_t sum =
      prompts.in_flight + prompts.trained + prompts.skipped + prompts.filtered + prompts.failed;
  if (audit.num_rolled_back > audit.num_records || sum != prompts.dispatched) std::abort();
  buffer::path_of(path, 17);
  if (audit.num_problems > 0 || audit.torn_bytes > 0) return;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (buffer::Ledger::open_at(path, size).summary() != prompts) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string bytes = data[0] % 2 == 1 ? with_checksums(input) : std::string(input);
  const int descriptor = ::memfd_create("fuzz", 0);
  if (::write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()))
    read_as_ledger("/proc/self/fd/" + std::to_string(descriptor));
  ::close(descriptor);
  return 0;
}
