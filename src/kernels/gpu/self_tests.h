#pragma once

/// Self-tests of a driver: recordings beside the same kernels launched one by one, and memory that goes back.
///
/// `slime check` tells their figures. On AMD's stack, where versions of the driver are known to fail at either, a program
/// also runs them before it relies on them (docs/rocm.md).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels {

/// As Gpu::record, without a neighbour.
using Record = std::function<std::unique_ptr<GpuGraph>(const std::function<void()>& body)>;

/// Bytes that differ between a replayed chain of kernels (product, norm, gated activation, logits) and the same
/// launched one by one, over `rounds` contents of its input. 0 where recordings work.
int64_t replay_differences(const Device& device, at::Device place, const Record& record,
                           int rounds);

struct ReturnedMemory {
  int64_t asked = 0;  // bytes that were reserved, mapped and unmapped in each round
  int64_t least_return =
      0;             // by which free memory rose when they were unmapped, in the worst round
  int64_t lost = 0;  // by which free memory is less after all rounds than before; below 0: more
  int64_t wrong_bytes = 0;  // that were read back otherwise than they were written

  /// Nine tenths come back each time and at the end: other processes use the GPU as well.
  bool is_right() const {
    return wrong_bytes == 0 && least_return >= asked / 10 * 9 && lost <= asked / 10;
  }
};

/// Reserves `bytes`; maps, writes, reads and unmaps them `rounds` times. Throws what the driver's calls throw.
ReturnedMemory returned_memory(GpuMemoryManager& memory, int64_t bytes, int rounds);

/// Problem of a measurement by returned_memory(), as a sentence; empty where there is none.
std::string problem_of(const ReturnedMemory& found);

}  // namespace slime::kernels
