#pragma once

/// Memory of this process, as the system sees it. In bytes; 0 where the system does not say.

#include <cstdint>

namespace slime::estimate {

/// What is in RAM now (RSS).
double resident_bytes();

/// The most that was in RAM since the last reset_peak_resident(). Where the system does not let a
/// process reset it: since the process began.
double peak_resident_bytes();
void reset_peak_resident();

struct HostMemory {
  int64_t total = 0;  // of the machine, the container or the process's own limit, whichever is less
  int64_t resident = 0;
};
HostMemory host_memory();

}  // namespace slime::estimate
