/// Any bytes as a safetensors file: either its tensors can be read or a ConfigError says why not.
///
///   cmake --preset fuzz && cmake --build --preset fuzz --target safetensors_fuzz &&
///   build/fuzz/safetensors_fuzz -max_total_time=60

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "core/error.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const int descriptor = ::memfd_create("fuzz", 0);
  if (::write(descriptor, bytes, size) == static_cast<ssize_t>(size)) {
    try {
      const slime::model::SafetensorsFile file("/proc/self/fd/" + std::to_string(descriptor));
      for (const auto& [name, tensor] : file.tensors()) file.read(name);
    } catch (const slime::ConfigError&) {  // the expected answer to most inputs
    }
  }
  ::close(descriptor);
  return 0;
}
