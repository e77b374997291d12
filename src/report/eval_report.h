#pragma once

/// The results of one evaluation: scores, metrics and remarks of its data sets.

#include <cstdint>
#include <string>
#include <vector>

#include "core/sample.h"
#include "report/metrics.h"

namespace slime::report {

struct EvalScore {
  std::string name;  // of the data set
  double mean_reward = 0;
  std::vector<Group> groups;  // failed samples too
};

struct EvalReport {
  std::vector<EvalScore> scores;
  /// eval/<name>, eval/<name>-failed and -too_long (counts), eval/<name>-truncated_ratio,
  /// eval/<name>/response_len/mean, ...
  Metrics metrics;
  std::vector<std::string> remarks;  // what a reader of the scores has to know, one line each
  bool is_logged = false;            // by a function of the user's: nobody else writes the metrics
  Metrics logged;                    // by that function
};

/// The results of an evaluation that ran while training went on.
struct ConcurrentEvaluation {
  int64_t step = 0;           // it was asked for after this one
  WeightVersion version = 0;  // that was evaluated
  int64_t lag = 0;            // updates published until it ended
  double seconds = 0;
  EvalReport report;
};

}  // namespace slime::report
