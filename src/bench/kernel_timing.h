#pragma once

/// How fast kernels of the GPU are: times of one call, and lines that hold them against what the
/// card reaches in a plain copy or in one large product.

#include <cstdint>
#include <functional>
#include <string>

#include "core/json.h"
#include "kernels/gpu/limits.h"

namespace slime::bench {

/// What a call must do at least.
struct KernelWork {
  double bytes = 0;  // each input read once, each output written once
  double flops = 0;
};

/// Seconds of one call among many: `num_calls` of them are recorded as one graph, so that the host
/// costs nothing, and the fastest of some launches of it counts. `call(i)` is the i-th; calls that
/// differ in what they read leave no warm cache behind. Nothing in it may wait for the GPU.
double recorded_seconds(int num_calls, const std::function<void(int)>& call);

/// The same without a recording, for calls that take far longer than their launch.
double launched_seconds(int num_calls, const std::function<void(int)>& call);

/// So many copies of `bytes` that the second level cache, 50 MB or so, forgets the first before
/// it is read again.
int num_cold_copies(int64_t bytes);

/// Whether the kernel is selected: `only` is in its name, "kernel-..." as it is printed.
bool wants_kernel(const std::string& only, const std::string& name);

/// Prints {"name": "kernel-...", "value", "unit", "limit", "fraction", "microseconds"}: TB/s where
/// moving the bytes takes longer at the limits, TFLOP/s otherwise.
void write_kernel_line(const std::string& name, const KernelWork& work, double seconds,
                       const kernels::GpuLimits& limits);

}  // namespace slime::bench
