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

void RunMemory::begin_phase() const {
  if (is_on_gpu_) {
    kernels::opened_gpu().reset_peak_memory();
  } else {
    estimate::reset_peak_resident();
  }
}

void RunMemory::end_phase(estimate::Phase phase) {
  (phase == estimate::Phase::kTrain ? train_peak_ : rollout_peak_) = peak_now();
}

void RunMemory::release_unused() const {
  if (is_on_gpu_) kernels::opened_gpu().release_unused_memory();
}

/// Of a GPU: pages of the cache, and what LibTorch's allocator and the libraries took.
estimate::PeakMemory RunMemory::peak_now() const {
  if (!is_on_gpu_) return {.bytes = static_cast<int64_t>(estimate::peak_resident_bytes())};
  const kernels::GpuMemoryUse use = kernels::opened_gpu().memory_use();
  return {.bytes = use.elsewhere() + use.mapped + use.peak_kept,
          .elsewhere = use.elsewhere(),
          .mapped = use.mapped,
          .kept = use.peak_kept,
          .tensors = use.peak_tensors};
}

int64_t RunMemory::bytes_now() const {
  if (!is_on_gpu_) return static_cast<int64_t>(estimate::resident_bytes());
  const kernels::GpuMemoryUse use = kernels::opened_gpu().memory_use();
  return use.total - use.free;
}

MemoryUse RunMemory::use_of_step() const {
  constexpr double kGibibyte = 1 << 30;
  const estimate::Phase phase = train_peak_.bytes >= rollout_peak_.bytes
                                    ? estimate::Phase::kTrain
                                    : estimate::Phase::kGenerate;
  const int64_t peak = measured(phase).bytes;
  return {.now = static_cast<double>(bytes_now()) / kGibibyte,
          .peak = static_cast<double>(peak) / kGibibyte,
          .holders = plan_->holders(phase, peak)};
}

}  // namespace slime::report
