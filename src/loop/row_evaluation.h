#pragma once

/// Validation of supervised training: the loss on rows that are not trained on (--eval-prompt-data
/// with --loss-type sft_loss). Nothing is generated.
///
/// The loss is the mean over all trained tokens of a data set, in nats, whatever a step's reduction
/// is: it does not depend on the order of rows nor on how they are packed.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/sample.h"
#include "loop/evaluation.h"
#include "roles/trainers.h"
#include "setup/prompts.h"

namespace slime::loop {

class RowEvaluation {
 public:
  /// Reads all data sets. `config` outlives the object. Throws ConfigError.
  RowEvaluation(const config::RunConfig& config, const setup::ModelText& text);

  /// Rows that are left out.
  const std::vector<std::string>& remarks() const { return remarks_; }
  int64_t num_rows() const;

  /// eval/NAME/loss, eval/NAME/tokens and eval/NAME-left_out, with the weights as they are. Stops
  /// early, with the sets that are done, when `stop` becomes true.
  report::EvalReport run(roles::Trainers& trainers, const std::atomic<bool>& stop) const;

 private:
  struct Set {
    std::string name;
    std::vector<Sample> rows;
    int64_t num_left_out = 0;
  };

  const config::RunConfig& config_;
  std::vector<Set> sets_;
  std::vector<std::string> remarks_;
};

}  // namespace slime::loop
