#include "engine/memory_on_demand.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

namespace slime::engine {
namespace {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(MemoryOnDemand, IsTakenAsItIsTouchedWhateverTheCLibraryKeeps) {
  constexpr int64_t kBytes = int64_t{128} << 20;
  // As a trainer's process has it (train/keep_freed_memory.h): freed memory stays, and is given again.
  ::mallopt(M_MMAP_MAX, 0);
  void* freed = std::malloc(kBytes);
  std::memset(freed, 1, kBytes);
  std::free(freed);
  const int64_t before = resident_bytes();
  const Tensor bytes = zeros_on_demand(kBytes / 1024, 1024, "keys");
  EXPECT_EQ(bytes[kBytes - 1].item<uint8_t>(), 0);
  EXPECT_LT(resident_bytes() - before, int64_t{8} << 20);
  bytes.slice(0, 0, kBytes / 2).fill_(1);
  EXPECT_GT(resident_bytes() - before, kBytes / 2 - (int64_t{8} << 20));
  give_back_memory(bytes);
  EXPECT_LT(resident_bytes() - before, int64_t{8} << 20);
  EXPECT_EQ(bytes[kBytes / 4].item<uint8_t>(), 0);
  ::mallopt(M_MMAP_MAX, 65536);  // glibc's own
}

}  // namespace
}  // namespace slime::engine
