#include "engine/device_copies.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace slime::engine {

void wait_for_copies(const at::Device& device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

}  // namespace slime::engine
