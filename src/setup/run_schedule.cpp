#include "setup/run_schedule.h"

#include <fmt/format.h>

namespace slime::setup {

std::string RunSchedule::when_saved() const {
  if (!save_interval) return "only at the end (--save-interval N: every N rollouts)";
  const bool is_epoch_longer = !epoch || epoch->in_epoch >= num_steps * epoch->in_rollout;
  if (*save_interval >= num_steps && is_epoch_longer) {
    return fmt::format("only at the end (--save-interval {}, of {} rollouts)", *save_interval,
                       num_steps);
  }
  const std::string rollouts =
      *save_interval == 1 ? "after each rollout"
                          : fmt::format("every {} rollouts and at the end", *save_interval);
  return is_epoch_longer ? rollouts : fmt::format("at the end of each epoch, and {}", rollouts);
}

}  // namespace slime::setup
