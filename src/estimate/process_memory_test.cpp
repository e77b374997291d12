#include "estimate/process_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace slime::estimate {
namespace {

TEST(ProcessMemory, ThePeakRemembersWhatWasGivenBack) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  reset_peak_resident();
  const double before = resident_bytes();
  {
    std::vector<char> block(kBytes);
    std::memset(block.data(), 1, block.size());
  }
  EXPECT_GE(peak_resident_bytes(), before + 0.9 * kBytes);
  EXPECT_LE(resident_bytes(), peak_resident_bytes() + (1 << 20));
}

TEST(ProcessMemory, TheMachineHasMoreThanThisProcessUses) {
  const HostMemory memory = host_memory();
  EXPECT_GT(memory.resident, 0);
  EXPECT_GT(memory.total, memory.resident);
}

}  // namespace
}  // namespace slime::estimate
