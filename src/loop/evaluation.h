#pragma once

/// Evaluation: every prompt of every evaluation data set n times, no filter, no training (spec
/// section 19.1).
///
/// A sample that fails (its prompt and one token do not fit the context, its reward gives no
/// answer) counts 0 in the score and in pass@k, unless --eval-leave-out-failed; how many failed and
/// why is reported either way. Prompts longer than --eval-max-prompt-len are no part of the data
/// set: their number is reported too.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "buffer/dataset.h"
#include "config/eval_config.h"
#include "config/run_config.h"
#include "report/eval_report.h"
#include "rollout/rollout.h"
#include "setup/prompts.h"

namespace slime::plugin {
class Plugins;
}  // namespace slime::plugin

namespace slime::loop {

/// Callbacks of a resumable evaluation: groups of an earlier process, and a recorder of new ones.
struct EvaluationRecord {
  /// Groups of a data set that are drawn and scored already; by their ordinals they are the data's.
  std::function<std::vector<Group>(const std::string& set)> done;
  /// Hears of each further one, on the rollout's thread.
  std::function<void(const std::string& set, const Group&)> add;
};

class Evaluation {
 public:
  /// Reads all data sets. Throws ConfigError.
  Evaluation(const config::RunConfig& config, const setup::ModelText& text);

  /// The functions of the user's that score data sets in the place of the run's reward.
  std::vector<std::string> own_rewards() const;
  /// Over all data sets.
  int64_t num_prompts() const;
  std::vector<std::string> names() const;
  /// The rows of a set; its groups have their places as ordinals.
  const buffer::Dataset& dataset(const std::string& name) const;
  /// What the user set and nothing reads, and prompts that are left out.
  const std::vector<std::string>& remarks() const { return remarks_; }

  /// Functions of the user's draw, where the flags say so. `plugins` outlives the object.
  void draw_by(plugin::Plugins& plugins);

  /// With the weights as they are. Stops early, with what is there, when `stop` becomes true.
  report::EvalReport run(rollout::Rollout& rollout, const std::atomic<bool>& stop,
                         const EvaluationRecord& record = {}) const;

 private:
  /// Sets score.mean_reward from score.groups, and adds metrics and remarks to the report.
  void add_score(report::EvalReport& report, report::EvalScore& score, int64_t num_too_long) const;

  struct Set {
    config::EvalSetConfig config;
    rollout::ResponseRules rules;
    buffer::Dataset dataset;
  };

  const config::RunConfig& config_;
  std::vector<std::string> remarks_;
  std::vector<std::unique_ptr<Set>> sets_;
};

}  // namespace slime::loop
