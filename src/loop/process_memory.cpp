#include "loop/process_memory.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace slime::loop {

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0, resident_pages = 0;
  file >> all_pages >> resident_pages;
  return static_cast<double>(resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace slime::loop
