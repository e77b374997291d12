#pragma once

/// Memory of the device that a run trains on: the plan made before it starts, what is used, and
/// what a user is told when there is not enough. Used by one thread: the loop's, or of a rank's
/// worker the one that trains.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "estimate/memory_plan.h"
#include "report/progress_lines.h"

namespace slime::report {

/// Of one process's memory on its device, in bytes.
struct MemoryMeasured {
  int64_t now = 0;
  estimate::PeakMemory peak;  // since the phase began
};

/// Measurements of one process's memory on its device.
class MemoryGauge {
 public:
  virtual ~MemoryGauge() = default;
  /// Peaks count from here on.
  virtual void begin_phase() = 0;
  virtual MemoryMeasured measure() = 0;
  /// Gives back what allocators hold and nobody uses.
  virtual void release_unused() = 0;
};

/// Of this process; a GPU is open when it is first asked.
std::unique_ptr<MemoryGauge> gauge_of_this_process(bool is_on_gpu);

class RunMemory {
 public:
  /// `model` and `checkpoints`: the directories named in messages.
  RunMemory(bool is_on_gpu, std::string model, std::string checkpoints)
      : is_on_gpu_(is_on_gpu),
        model_(std::move(model)),
        checkpoints_(std::move(checkpoints)),
        gauge_(gauge_of_this_process(is_on_gpu)) {}

  /// Plans from what is resident now; again when that has changed. `in_tensors`: bytes of weights
  /// and optimizer that are in place already. Throws ConfigError when the run cannot fit.
  void plan(const config::RunConfig& config, const estimate::MemoryNeeds& needs,
            int64_t in_tensors);
  /// What trains is in another process, which made this plan and is measured by `gauge`.
  void plan_elsewhere(estimate::MemoryPlan plan, std::unique_ptr<MemoryGauge> gauge);
  const estimate::MemoryPlan& plan() const { return *plan_; }

  /// Does `work`, which takes memory. When there is not enough, the ConfigError says who has it,
  /// what would help and where the last checkpoint is.
  void explain_shortage(estimate::Phase phase, const std::function<void()>& work) const;
  /// The checkpoint of this rollout is complete: part of what is said then.
  void set_last_checkpoint(int64_t rollout) { last_checkpoint_ = rollout; }

  /// Peaks count from here on.
  void begin_phase() const { gauge_->begin_phase(); }
  /// The peak since begin_phase() was that of `phase` in the newest step.
  void end_phase(estimate::Phase phase);
  /// Gives back what allocators hold and nobody uses.
  void release_unused() const { gauge_->release_unused(); }

  /// Bytes at the peak of the newest step; 0: the phase has not been there.
  int64_t peak(estimate::Phase phase) const { return measured(phase).bytes; }
  /// The same with its parts.
  const estimate::PeakMemory& measured(estimate::Phase phase) const {
    return phase == estimate::Phase::kTrain ? train_peak_ : rollout_peak_;
  }
  MemoryMeasured measured() const { return gauge_->measure(); }
  MemoryUse use_of_step() const;
  bool is_on_gpu() const { return is_on_gpu_; }
  /// Of this process, not of another.
  bool is_here() const { return is_here_; }

 private:
  int64_t take_library_workspaces();

  bool is_on_gpu_;
  bool is_here_ = true;
  std::string model_;
  std::string checkpoints_;
  std::optional<int64_t> last_checkpoint_;
  int64_t library_workspaces_ = 0;  // so far
  std::optional<estimate::MemoryPlan> plan_;
  std::unique_ptr<MemoryGauge> gauge_;
  estimate::PeakMemory rollout_peak_;
  estimate::PeakMemory train_peak_;
};

}  // namespace slime::report
