#include "loop/function_groups.h"

namespace slime::loop {

OpenGroups FunctionGroups::open_groups() {
  OpenGroups open = evaluations_->open_groups();
  const auto lock = std::make_shared<FunctionSource::StateLock>(*function_);
  open.locks.push_back(lock);
  open.taken = lock->taken();
  open.sampled = lock->sampled();
  return open;
}

FunctionGroupsAhead::FunctionGroupsAhead(std::unique_ptr<RolloutSource> evaluations,
                                         std::unique_ptr<FunctionSource> function,
                                         int64_t num_steps, int64_t groups_per_step,
                                         OutcomeLog& outcomes, roles::Trainers& trainers,
                                         report::RunMemory& memory, report::Recorder& recorder)
    : FunctionGroups(std::move(evaluations), std::move(function)),
      ahead_(this->function(), num_steps, groups_per_step, trainers, memory, recorder) {
  outcomes.lock_by(
      [&source = this->function()] { return std::make_shared<FunctionSource::StateLock>(source); });
}

}  // namespace slime::loop
