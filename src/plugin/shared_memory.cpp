#include "plugin/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "core/error.h"

namespace slime::plugin {
namespace {

[[noreturn]] void throw_system_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

SharedMemory::SharedMemory(int64_t bytes)
    : bytes_(bytes), descriptor_(::memfd_create("slime-tensors", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  check(bytes > 0, "shared memory has a size");
  if (descriptor_ < 0) throw_system_error("shared memory for a plug-in host");
  void* data = MAP_FAILED;
  // The size is for good: who made it smaller would end whoever reads behind its end.
  if (::ftruncate(descriptor_, bytes) == 0 &&
      ::fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                  descriptor_, 0);
  }
  if (data == MAP_FAILED) {
    const int error = errno;
    ::close(descriptor_);
    errno = error;
    throw_system_error("shared memory for a plug-in host");
  }
  data_ = static_cast<std::byte*>(data);
}

SharedMemory::~SharedMemory() {
  ::munmap(data_, static_cast<std::size_t>(bytes_));
  ::close(descriptor_);
}

int64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kilobytes = 0;
  while (file >> name >> kilobytes >> unit) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return 0;
}

}  // namespace slime::plugin
