#include "report/run_memory.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/out_of_memory.h"
#include "estimate/process_memory.h"
#include "kernels/gpu/gpu.h"

namespace slime::report {
namespace {

class HostGauge final : public MemoryGauge {
 public:
  void begin_phase() override { estimate::reset_peak_resident(); }
  MemoryMeasured measure() override {
    return {.now = static_cast<int64_t>(estimate::resident_bytes()),
            .peak = {.bytes = static_cast<int64_t>(estimate::peak_resident_bytes())}};
  }
  void release_unused() override {}
};

class GpuGauge final : public MemoryGauge {
 public:
  void begin_phase() override { kernels::opened_gpu().reset_peak_memory(); }
  /// At the peak pages of the cache, and what LibTorch's allocator and the libraries took.
  MemoryMeasured measure() override {
    const kernels::GpuMemoryUse use = kernels::opened_gpu().memory_use();
    return {.now = use.total - use.free,
            .peak = {.bytes = use.elsewhere() + use.mapped + use.peak_kept,
                     .elsewhere = use.elsewhere(),
                     .mapped = use.mapped,
                     .kept = use.peak_kept,
                     .tensors = use.peak_tensors}};
  }
  void release_unused() override { kernels::opened_gpu().release_unused_memory(); }
};

}  // namespace

std::unique_ptr<MemoryGauge> gauge_of_this_process(bool is_on_gpu) {
  if (is_on_gpu) return std::make_unique<GpuGauge>();
  return std::make_unique<HostGauge>();
}

void RunMemory::plan_elsewhere(estimate::MemoryPlan plan, std::unique_ptr<MemoryGauge> gauge) {
  plan_.emplace(std::move(plan));
  gauge_ = std::move(gauge);
  is_here_ = false;
}

void RunMemory::plan(const config::RunConfig& config, const estimate::MemoryNeeds& needs,
                     int64_t in_tensors) {
  release_unused();
  if (is_on_gpu_) {
    estimate::MemoryNeeds all = needs;
    all.library_workspaces = take_library_workspaces();
    plan_.emplace(config, all, kernels::opened_gpu().memory_use());
  } else {
    plan_.emplace(config, needs, estimate::host_memory(), in_tensors);
  }
}

/// The first product makes the library's handle, which is part of what is elsewhere from then on, and
/// takes its workspace among LibTorch's tensors.
int64_t RunMemory::take_library_workspaces() {
  const int64_t before = kernels::opened_gpu().memory_use().tensors;
  {
    const Tensor ones = at::ones({16, 16}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
    at::mm(ones, ones);
  }
  library_workspaces_ += kernels::opened_gpu().memory_use().tensors - before;
  return library_workspaces_;
}

void RunMemory::explain_shortage(estimate::Phase phase, const std::function<void()>& work) const {
  try {
    work();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string said =
        torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
    if (!plan_)
      throw ConfigError(fmt::format("the weights of {} do not fit into the memory that is free: {}",
                                    model_, said));
    std::string text = plan_->explain(phase, said);
    if (last_checkpoint_)
      text += fmt::format(
          "\nThe checkpoint of rollout {} in {} is complete; the same command goes on from there.",
          *last_checkpoint_, checkpoints_);
    throw ConfigError(text);
  }
}

void RunMemory::end_phase(estimate::Phase phase) {
  (phase == estimate::Phase::kTrain ? train_peak_ : rollout_peak_) = gauge_->measure().peak;
}

MemoryUse RunMemory::use_of_step() const {
  constexpr double kGibibyte = 1 << 30;
  const estimate::Phase phase = train_peak_.bytes >= rollout_peak_.bytes
                                    ? estimate::Phase::kTrain
                                    : estimate::Phase::kGenerate;
  const int64_t peak = measured(phase).bytes;
  return {.now = static_cast<double>(gauge_->measure().now) / kGibibyte,
          .peak = static_cast<double>(peak) / kGibibyte,
          .holders = plan_->holders(phase, peak)};
}

}  // namespace slime::report
