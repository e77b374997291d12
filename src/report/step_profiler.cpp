#include "report/step_profiler.h"

#include <utility>

#include "kernels/trace.h"

namespace slime::report {

StepProfiler::StepProfiler(std::filesystem::path file, int64_t begin, int64_t end, bool with_gpu)
    : file_(std::move(file)), begin_(begin), end_(end), with_gpu_(with_gpu) {}

std::optional<std::filesystem::path> StepProfiler::before_step(int64_t step) {
  const bool wanted = step >= begin_ && step < end_;
  if (wanted == is_tracing_) return std::nullopt;
  if (!wanted) return after_last_step();
  kernels::begin_trace(with_gpu_);
  is_tracing_ = true;
  return std::nullopt;
}

std::optional<std::filesystem::path> StepProfiler::after_last_step() {
  if (!std::exchange(is_tracing_, false)) return std::nullopt;
  kernels::end_trace(file_.string());
  return file_;
}

}  // namespace slime::report
