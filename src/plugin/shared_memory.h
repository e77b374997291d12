#pragma once

/// Memory that a plug-in host maps as well: both see what either writes, and nothing is copied.

#include <cstddef>
#include <cstdint>

namespace slime::plugin {

class SharedMemory {
 public:
  /// Zeros. Pages count as memory once somebody has touched them, so a reserve costs nothing. Throws
  /// std::system_error when the system gives none.
  explicit SharedMemory(int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }

 private:
  int64_t bytes_;
  int descriptor_;
  std::byte* data_ = nullptr;
};

/// What this machine could give now without swapping. Zero where the system does not say.
int64_t available_memory_bytes();

}  // namespace slime::plugin
