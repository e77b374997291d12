#pragma once

/// Evaluations of a run, in the form that its flags ask for: siblings behind one interface, chosen once.
///
///   none                  nothing is ever due
///   rows                  loss of rows that are not trained (loop/row_evaluation.h)
///   sets                  the run's engines stop drawing for training meanwhile (loop/evaluation.h)
///   beside                a second engine, while training goes on (loop/evaluation_beside.h):
///                         idle -> evaluate -> under way -> taken, or abandoned at Ctrl-C -> idle
///   function              a function of the user's (--eval-function-path)

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "config/run_config.h"
#include "core/clock.h"
#include "loop/evaluation.h"
#include "loop/group_source.h"
#include "loop/outcome_log.h"
#include "loop/row_evaluation.h"
#include "plugin/plugins.h"
#include "report/recorder.h"
#include "report/run_memory.h"
#include "report/timeline.h"
#include "roles/engines.h"
#include "roles/trainers.h"
#include "setup/prompts.h"

namespace slime::loop {

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  /// All sets with the weights that the engines have, for the metrics of step `step`. Broken off at
  /// Ctrl-C.
  virtual void evaluate(int64_t step) = 0;
  /// The row of an evaluation beside training that has ended; `waits`: or that is under way. Ctrl-C
  /// abandons the latter.
  virtual void take(bool /*waits*/) {}
};

/// What evaluations work with. References outlive the evaluator.
struct EvaluatorParts {
  const config::RunConfig& config;
  const setup::ModelText& text;
  roles::Trainers& trainers;
  roles::Engines& engines;
  GroupSource& source;
  buffer::DataSource& prompts;
  OutcomeLog& outcomes;
  plugin::Plugins& plugins;
  report::RunMemory& memory;
  report::Recorder& recorder;
  report::Timeline& timeline;
  const Clock& clock;
  int64_t engine_threads = 0;  // of the run's engines alone; 0: they share the trainer's
};

/// Evaluation sets of the flags, read before there is anything to evaluate.
struct EvaluationSets {
  std::unique_ptr<Evaluation> generated;
  std::unique_ptr<RowEvaluation> rows;
};

/// The form that the flags ask for.
std::unique_ptr<Evaluator> make_evaluator(const EvaluatorParts& parts, EvaluationSets sets);

}  // namespace slime::loop
