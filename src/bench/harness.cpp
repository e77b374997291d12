#include "bench/harness.h"

#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>

#include "core/best_seconds.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

constexpr int kRuns = 5;

std::string printed_name(const std::string& name) { return "kernel-" + name; }

}  // namespace

double recorded_seconds(int num_calls, const KernelCall& call) {
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
  device.synchronizeDevice(0);  // sync: what was made on another stream is there
  call(0);                      // libraries choose their kernels
  device.synchronizeDevice(0);
  const auto graph = kernels::opened_gpu().record(
      [&] {
        for (int i = 0; i < num_calls; ++i) call(i);
      },
      nullptr, kernels::GraphLaunch::kWhole);
  const auto replay = [&] {
    graph->replay();
    device.synchronizeDevice(0);  // sync: the end of what is measured
  };
  replay();
  return best_seconds(kRuns, replay) / num_calls;
}

double launched_seconds(int num_calls, const KernelCall& call) {
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const auto run = [&] {
    for (int i = 0; i < num_calls; ++i) call(i);
    device.synchronizeDevice(0);  // sync: the end of what is measured
  };
  run();
  return best_seconds(kRuns, run) / num_calls;
}

int num_cold_copies(int64_t bytes) {
  constexpr int64_t kFar = int64_t{256} << 20;
  return static_cast<int>(std::clamp<int64_t>((kFar + bytes - 1) / bytes, 2, 64));
}

bool KernelLines::wants(const std::string& name) const {
  return printed_name(name).find(only) != std::string::npos;
}

void KernelLines::write(const std::string& name, const KernelWork& work, double seconds) const {
  const bool moves =
      work.bytes / limits.copy_bytes_per_second > work.flops / limits.flops_per_second;
  const double limit = moves ? limits.copy_bytes_per_second : limits.flops_per_second;
  const double value = (moves ? work.bytes : work.flops) / seconds;
  write_json_line({{"name", printed_name(name)},
                   {"value", value * 1e-12},
                   {"unit", moves ? "TB/s" : "TFLOP/s"},
                   {"limit", limit * 1e-12},
                   {"fraction", value / limit},
                   {"microseconds", seconds * 1e6}});
}

}  // namespace slime::bench
