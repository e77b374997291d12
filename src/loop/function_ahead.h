#pragma once

/// A rollout function of the user's that is called one step ahead (slime train-async, as the original's
/// train_async.py): while step n is trained it draws step n + 1.
///
///   loop                                    thread of the call           plug-in host
///   take step n     <------ sampled step ---- keep its groups  <---------- returns
///   make the batch
///   begin n + 1     ----------------------> call             ----------> samples through the run's HTTP API
///   train n                                 prompts, ledger  <---------- get_samples, add_samples
///   publish (drain: waits for n + 1)
///   outcomes, save     ---- lock -----------> stands still
///
/// The batch of step n is made first, because the user's other functions of a step wait in the same
/// thread of the host for the rollout function to end. Tokens are one update old at most: step n + 1
/// begins behind the update before step n.

#include <atomic>
#include <cstdint>
#include <future>

#include "loop/function_source.h"
#include "loop/group_source.h"
#include "report/recorder.h"
#include "report/run_memory.h"
#include "roles/trainers.h"

namespace slime::loop {

/// Used by the loop's thread.
class FunctionAhead final {
 public:
  /// Steps are [.., num_steps). References outlive the object.
  FunctionAhead(FunctionSource& function, int64_t num_steps, int64_t groups_per_step,
                roles::Trainers& trainers, report::RunMemory& memory, report::Recorder& recorder)
      : function_(function),
        num_steps_(num_steps),
        groups_per_step_(groups_per_step),
        trainers_(trainers),
        memory_(memory),
        recorder_(recorder) {}
  /// Waits for the function no more: prompts that it has are where the last checkpoint has them.
  ~FunctionAhead();
  FunctionAhead(const FunctionAhead&) = delete;
  FunctionAhead& operator=(const FunctionAhead&) = delete;

  /// Calls the function for `step` and returns at once. Nothing is called for a step that is sampled
  /// already, or is not of the run.
  void begin(int64_t step);
  /// For the step behind that which was taken last.
  void begin_next() { begin(last_taken_ + 1); }

  /// Waits for a step that was begun. Throws like FunctionSource::take.
  report::Collected take(int64_t step);

  /// Until no function is under way; no longer than `gives_up` is false. False: it became true. What the
  /// function throws take() throws.
  bool wait(const std::atomic<bool>& gives_up);

 private:
  bool is_under_way();

  FunctionSource& function_;
  const int64_t num_steps_;
  const int64_t groups_per_step_;
  roles::Trainers& trainers_;
  report::RunMemory& memory_;
  report::Recorder& recorder_;
  int64_t last_taken_ = -1;
  std::atomic<bool> stop_{false};
  std::future<void> call_;  // invalid: none was made since the last take
};

}  // namespace slime::loop
