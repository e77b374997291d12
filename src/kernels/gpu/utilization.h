#pragma once

/// Utilization of GPUs: the share of the time in which kernels ran, as NVML tells it.

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace slime::kernels {

/// Shares from 0 to 1 of the last moment, one for each GPU.
using ReadUtilization = std::function<std::vector<double>()>;

/// Of the GPUs of this host that are visible to this process; null where there is no NVML, or no GPU.
ReadUtilization nvml_utilization();

/// Means over stretches of time, sampled by a thread of its own.
class GpuUtilization {
 public:
  explicit GpuUtilization(ReadUtilization read,
                          std::chrono::milliseconds period = std::chrono::milliseconds(500));

  /// Means of each GPU since the last call, or since the beginning; empty: nothing was sampled.
  std::vector<double> take();

 private:
  void sample();

  const ReadUtilization read_;
  std::mutex mutex_;
  std::vector<double> sums_;  // guarded by mutex_, as the next
  int count_ = 0;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace slime::kernels
