#pragma once

/// Micro-benchmarks: warm-up, repetitions and statistics of a piece of work, and the printed line of
/// a kernel of the GPU, which holds it against what the card reaches in a plain copy or in one large
/// product. core/best_seconds.h has the fastest of some runs.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/best_seconds.h"
#include "core/json.h"
#include "kernels/gpu/limits.h"

namespace slime::bench {

/// Seconds of the fastest of as many runs as fit into the time, three at least.
template <typename Work>
double best_seconds_within(double budget_seconds, const Work& work) {
  double best = best_seconds(1, work), spent = best;
  for (int i = 1; i < 3 || spent < budget_seconds; ++i) {
    const double seconds = best_seconds(1, work);
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

/// Seconds of each of `repeats` runs, the fastest first.
template <typename Work>
std::vector<double> sorted_seconds(int repeats, const Work& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(best_seconds(1, work));
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

/// The middle one, the later of the two middle ones; 0 of none.
inline double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

/// Least work of a call.
struct KernelWork {
  double bytes = 0;  // each input read once, each output written once
  double flops = 0;
};

/// `call(i)` is the i-th of some; calls that differ in what they read leave no warm cache behind.
using KernelCall = std::function<void(int)>;

/// Seconds of one call among many: `num_calls` of them are recorded as one graph, so that the host
/// costs nothing, and the fastest of some launches of it counts. Nothing in it may wait for the GPU.
double recorded_seconds(int num_calls, const KernelCall& call);

/// The same without a recording, for calls that take far longer than their launch.
double launched_seconds(int num_calls, const KernelCall& call);

/// So many copies of `bytes` that the second level cache, 50 MB or so, forgets the first before
/// it is read again.
int num_cold_copies(int64_t bytes);

/// The kernels that were asked for, and their lines.
struct KernelLines {
  kernels::GpuLimits limits;
  std::string only;  // of the names, "kernel-..." as they are printed; "": all

  bool wants(const std::string& name) const;
  /// Prints {"name": "kernel-...", "value", "unit", "limit", "fraction", "microseconds"}: TB/s where
  /// moving the bytes takes longer at the limits, TFLOP/s otherwise.
  void write(const std::string& name, const KernelWork& work, double seconds) const;
};

}  // namespace slime::bench
