#include "estimate/process_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace slime::estimate {
namespace {

/// Of the line "NAME:  123 kB" in a file of /proc.
int64_t kilobytes_of(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == name + ":" && file >> kilobytes) return kilobytes;
  }
  return 0;
}

}  // namespace

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0, resident_pages = 0;
  file >> all_pages >> resident_pages;
  return static_cast<double>(resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double peak_resident_bytes() {
  return 1024.0 * static_cast<double>(kilobytes_of("/proc/self/status", "VmHWM"));
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

HostMemory host_memory() {
  constexpr auto kNoLimit = std::numeric_limits<int64_t>::max();
  HostMemory memory;
  memory.resident = static_cast<int64_t>(resident_bytes());
  const int64_t machine = 1024 * kilobytes_of("/proc/meminfo", "MemTotal");
  memory.total = machine > 0 ? machine : kNoLimit;
  // "max" where the container has no limit of its own: no number is read then.
  if (int64_t limit = 0; std::ifstream("/sys/fs/cgroup/memory.max") >> limit)
    memory.total = std::min(memory.total, limit);
  rlimit own{};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    memory.total = std::min(memory.total, static_cast<int64_t>(own.rlim_cur));
  return memory;
}

}  // namespace slime::estimate
