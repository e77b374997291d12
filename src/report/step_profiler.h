#pragma once

/// `--profile`: a trace of some rollout steps, one file that opens in Perfetto.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace slime::report {

class StepProfiler {
 public:
  /// Steps [begin, end) of the run are traced into `file`. with_gpu: the GPU's kernels too.
  StepProfiler(std::filesystem::path file, int64_t begin, int64_t end, bool with_gpu);

  /// Call outside of any range, on one thread, before each step. Returns the file when the step
  /// before was the last one traced.
  std::optional<std::filesystem::path> before_step(int64_t step);
  /// The same when no step follows.
  std::optional<std::filesystem::path> after_last_step();

 private:
  std::filesystem::path file_;
  int64_t begin_;
  int64_t end_;
  bool with_gpu_;
  bool is_tracing_ = false;
};

}  // namespace slime::report
