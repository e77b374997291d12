#include "report/run_summary.h"

#include <fmt/format.h>

#include "core/own_command.h"
#include "core/shell_word.h"

namespace slime::report {

void RunSummary::add_reward(double reward) {
  if (!first_reward_) first_reward_ = reward;
  last_reward_ = reward;
}

void RunSummary::add_scores(Scores scores) {
  last_scores_ = std::move(scores);
  if (first_scores_.empty()) first_scores_ = last_scores_;
}

ClosingTable RunSummary::table(int64_t steps_done, int64_t num_steps, const std::string& root,
                               bool interrupted) const {
  ClosingTable table{.rows = {}, .is_interrupted = interrupted};
  const auto add = [&table](std::string name, std::string text, bool says_what_next = false) {
    table.rows.push_back({std::move(name), std::move(text), says_what_next});
  };
  add("rollout steps",
      fmt::format("{} of {}{}", steps_done, num_steps, interrupted ? ", interrupted" : ""));
  if (interrupted && saves_) {
    add("to go on", last_saved_
                        ? fmt::format("the same command continues after rollout {}", *last_saved_)
                        : std::string("nothing was trained yet: the same command starts over"));
  }
  if (first_reward_) add("reward", fmt::format("{:.3f} -> {:.3f}", *first_reward_, last_reward_));
  for (std::size_t i = 0; i < last_scores_.size(); ++i) {
    add(last_scores_[i].first,
        fmt::format("{:.3f} -> {:.3f}", first_scores_[i].second, last_scores_[i].second));
  }
  if (last_saved_) add("checkpoint", fmt::format("{}/latest (rollout {})", root, *last_saved_));
  add("report", own_command("report " + shell_word(root)), /*says_what_next=*/true);
  if (last_saved_)
    add("talk to it", own_command("chat " + shell_word(root)), /*says_what_next=*/true);
  return table;
}

}  // namespace slime::report
