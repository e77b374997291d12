#pragma once

/// The closing table of a run: where reward and evaluations began and ended, and what to do next.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/progress_lines.h"

namespace slime::report {

class RunSummary {
 public:
  /// By name of the data set, in order.
  using Scores = std::vector<std::pair<std::string, double>>;

  /// `saves`: the run trains, and leaves checkpoints.
  explicit RunSummary(bool saves) : saves_(saves) {}

  void add_reward(double reward);
  void add_scores(Scores scores);
  void set_saved(int64_t step) { last_saved_ = step; }

  /// `root`: the run's folder.
  /// `interrupted`: the run was told to stop, and `steps_done` are not all.
  ClosingTable table(int64_t steps_done, int64_t num_steps, const std::string& root,
                     bool interrupted) const;

 private:
  bool saves_;
  Scores first_scores_;
  Scores last_scores_;
  std::optional<double> first_reward_;
  double last_reward_ = 0;
  std::optional<int64_t> last_saved_;
};

}  // namespace slime::report
