// Bytes as what hosts of a run say to its controller, strangers among them, and as its orders: either they
// are refused or they mean what is written for them. Slurm's list of hosts is foreign, too.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cluster/launch_environment.h"
#include "cluster/node_frames.h"
#include "core/error.h"

using namespace slime::cluster;

namespace {

template <typename Read>
void means_the_same(const Read& read, std::string_view frame) {
  const std::string once = to_frame(read(frame));
  if (to_frame(read(once)) != once) std::abort();
}

}  // namespace

/// The first byte chooses.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view frame(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 5) {
      case 0:
        means_the_same(node_hello_from, frame);
        break;
      case 1:
        means_the_same(worker_hello_from, frame);
        break;
      case 2:
        means_the_same(start_from, frame);
        break;
      case 3:
        means_the_same(worker_news_from, frame);
        break;
      default:
        first_slurm_host(frame);
    }
  } catch (const slime::ConfigError&) {
  }
  return 0;
}
