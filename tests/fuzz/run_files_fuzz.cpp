// Bytes as the files that a run reads line by line: dumped samples, rows of prompts.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "buffer/dataset_row.h"
#include "core/error.h"
#include "core/sample.h"
#include "report/rollout_files.h"

using namespace slime;

namespace {

/// What was read is written and read again as the same.
void expect_lasting(const Sample& sample) {
  const json::object written = to_json(sample);
  if (to_json(sample_from_json(written, "again")) != written) std::abort();
}

void read_as(int kind, std::string_view input, const std::string& path) {
  if (kind == 0) {
    for (const Group& group : report::read_samples(path))
      for (const Sample& sample : group.samples) expect_lasting(sample);
  } else {
    const auto row = buffer::read_row(input, {.input = "input", .label = "label"}, "fuzz");
    const auto again = buffer::unpack_row(buffer::pack_row(row));
    if (again.prompt != row.prompt || again.label != row.label) std::abort();
  }
}

}  // namespace

/// The first byte chooses.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int descriptor = ::memfd_create("fuzz", 0);
  if (::write(descriptor, input.data(), input.size()) == static_cast<ssize_t>(input.size())) {
    try {
      read_as(data[0] % 2, input, "/proc/self/fd/" + std::to_string(descriptor));
    } catch (const ConfigError&) {  // the expected answer to most inputs
    }
  }
  ::close(descriptor);
  return 0;
}
