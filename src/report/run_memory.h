#pragma once

/// Memory of the device that a run trains on: the plan made before it starts, what is used, and
/// what a user is told when there is not enough. Used by the thread of the loop.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "estimate/memory_plan.h"
#include "report/progress_lines.h"

namespace slime::report {

class RunMemory {
 public:
  /// `model` and `checkpoints`: the directories named in messages.
  RunMemory(bool is_on_gpu, std::string model, std::string checkpoints)
      : is_on_gpu_(is_on_gpu), model_(std::move(model)), checkpoints_(std::move(checkpoints)) {}

  /// Plans from what is resident now; again when that has changed. `in_tensors`: bytes of weights
  /// and optimizer that are in place already. Throws ConfigError when the run cannot fit.
  void plan(const config::RunConfig& config, const estimate::MemoryNeeds& needs,
            int64_t in_tensors);
  const estimate::MemoryPlan& plan() const { return *plan_; }

  /// Does `work`, which takes memory. When there is not enough, the ConfigError says who has it,
  /// what would help and where the last checkpoint is.
  void explain_shortage(estimate::Phase phase, const std::function<void()>& work) const;
  /// The checkpoint of this rollout is complete: part of what is said then.
  void set_last_checkpoint(int64_t rollout) { last_checkpoint_ = rollout; }

  /// Peaks count from here on.
  void begin_phase() const;
  /// The peak since begin_phase() was that of `phase` in the newest step.
  void end_phase(estimate::Phase phase);
  /// Gives back what allocators hold and nobody uses.
  void release_unused() const;

  /// Bytes at the peak of the newest step; 0: the phase has not been there.
  int64_t peak(estimate::Phase phase) const { return measured(phase).bytes; }
  /// The same with its parts.
  const estimate::PeakMemory& measured(estimate::Phase phase) const {
    return phase == estimate::Phase::kTrain ? train_peak_ : rollout_peak_;
  }
  MemoryUse use_of_step() const;
  bool is_on_gpu() const { return is_on_gpu_; }

 private:
  estimate::PeakMemory peak_now() const;
  int64_t take_library_workspaces();
  int64_t bytes_now() const;

  bool is_on_gpu_;
  std::string model_;
  std::string checkpoints_;
  std::optional<int64_t> last_checkpoint_;
  int64_t library_workspaces_ = 0;  // so far
  std::optional<estimate::MemoryPlan> plan_;
  estimate::PeakMemory rollout_peak_;
  estimate::PeakMemory train_peak_;
};

}  // namespace slime::report
