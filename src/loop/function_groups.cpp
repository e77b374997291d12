#include "loop/function_groups.h"

namespace slime::loop {

OpenGroups FunctionGroups::open_groups() {
  OpenGroups open = evaluations_->open_groups();
  const auto lease = std::make_shared<FunctionSource::Lease>(*function_);
  open.leases.push_back(lease);
  open.taken = lease->taken();
  open.drawn = lease->drawn();
  return open;
}

FunctionGroupsAhead::FunctionGroupsAhead(std::unique_ptr<RolloutSource> evaluations,
                                         std::unique_ptr<FunctionSource> function,
                                         int64_t num_steps, int64_t groups_per_step, Fates& fates,
                                         roles::Trainers& trainers, report::RunMemory& memory,
                                         report::Recorder& recorder)
    : FunctionGroups(std::move(evaluations), std::move(function)),
      ahead_(this->function(), num_steps, groups_per_step, trainers, memory, recorder) {
  fates.lend_by(
      [&source = this->function()] { return std::make_shared<FunctionSource::Lease>(source); });
}

}  // namespace slime::loop
