#pragma once

/// Wait for copies to a device, which another stream than this thread's reads next.

#include "core/tensor.h"

namespace slime::engine {

/// sync: what this thread has on its way to a GPU has arrived. Not all of the device: another engine may be recording.
/// Nothing on the CPU.
void wait_for_copies(const at::Device& device);

}  // namespace slime::engine
