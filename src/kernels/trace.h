#pragma once

/// Named ranges of a profile that opens in Perfetto (ui.perfetto.dev) or chrome://tracing.
///
/// LibTorch's own profiler records them: ranges of every thread beside its operators, and on an
/// NVIDIA GPU each kernel and copy, through CUPTI. Without a trace under way a range costs one
/// relaxed load.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace slime::kernels {

/// The time from construction to destruction, on the thread that does both. Ranges of a thread
/// nest.
class TraceRange {
 public:
  /// `name` outlives the range.
  explicit TraceRange(const char* name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  struct Recording;
  std::unique_ptr<Recording> recording_;  // null where no trace was under way
};

/// Begins a trace of all threads; `with_gpu`: kernels and copies too. Throws ConfigError when one
/// is under way already, in this process there is one at most.
void begin_trace(bool with_gpu);

/// A kernel or a copy of the GPU in a trace.
struct TracedKernel {
  std::string name;
  int64_t stream = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

/// Ends it without a file: what the GPU did. As end_trace().
std::vector<TracedKernel> end_trace_of_gpu();

/// Ends it and writes `path` (JSON). Call on the thread that began it, outside of its ranges.
/// Throws ConfigError when the file cannot be written.
void end_trace(const std::string& path);

}  // namespace slime::kernels
