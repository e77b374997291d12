#include "kernels/trace.h"

#include <ATen/record_function.h>
#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <unordered_set>

#include "core/error.h"

namespace slime::kernels {
namespace {

using torch::profiler::impl::ActivityType;

std::atomic<bool> is_tracing{false};

/// Ranges that were named on the host are on the GPU's lanes too, from their first kernel to their last.
bool is_work(uint8_t type) {
  using libkineto::ActivityType;
  const auto kind = static_cast<ActivityType>(type);
  return kind == ActivityType::CONCURRENT_KERNEL || kind == ActivityType::GPU_MEMCPY ||
         kind == ActivityType::GPU_MEMSET;
}

torch::profiler::impl::ProfilerConfig make_config() {
  torch::profiler::impl::ExperimentalConfig every_thread;
  every_thread.profile_all_threads = true;
  return torch::profiler::impl::ProfilerConfig(
      torch::profiler::impl::ProfilerState::KINETO, /*report_input_shapes=*/false,
      /*profile_memory=*/false, /*with_stack=*/false, /*with_flops=*/false,
      /*with_modules=*/false, every_thread);
}

std::unique_ptr<torch::autograd::profiler::ProfilerResult> stop() {
  check(is_tracing, "a trace that ends has begun");
  is_tracing = false;
  return torch::autograd::profiler::disableProfiler();
}

}  // namespace

struct TraceRange::Recording {
  at::RecordFunction range{at::RecordScope::USER_SCOPE};
};

TraceRange::TraceRange(const char* name) {
  if (!is_tracing.load(std::memory_order_relaxed)) return;
  recording_ = std::make_unique<Recording>();
  recording_->range.before(name);
}

TraceRange::~TraceRange() = default;

void begin_trace(bool with_gpu) {
  if (is_tracing) throw ConfigError("a trace is under way already");
  std::set<ActivityType> activities{ActivityType::CPU};
  if (with_gpu) activities.insert(ActivityType::CUDA);
  const auto config = make_config();
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(
      config, activities,
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  is_tracing = true;
}

std::vector<TracedKernel> end_trace_of_gpu() {
  std::vector<TracedKernel> kernels;
  const auto result = stop();
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA || !is_work(event.activityType())) continue;
    kernels.push_back({event.name(), event.deviceResourceId(),
                       static_cast<int64_t>(event.startNs()), static_cast<int64_t>(event.endNs())});
  }
  return kernels;
}

void end_trace(const std::string& path) {
  const auto result = stop();
  std::error_code error;
  std::filesystem::remove(path, error);  // whether it was written is asked below
  result->save(path);
  if (!std::filesystem::exists(path)) throw ConfigError(path + ": the trace cannot be written");
}

}  // namespace slime::kernels
