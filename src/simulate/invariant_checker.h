#pragma once

/// Checker of a simulated run's invariants: each prompt ends once, each token is where it belongs with the
/// version that sampled it, none is lost, staleness keeps its bound.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "buffer/ledger_record.h"
#include "core/sample.h"
#include "simulate/scenario.h"

namespace slime::simulate {

/// What has come to pass up to a checkpoint or the present moment: rolled back with the run.
struct Course {
  std::map<int64_t, buffer::Outcome> outcomes;      // of each prompt that was given out
  std::map<int64_t, std::vector<int64_t>> trained;  // ordinals by step
};

class InvariantChecker {
 public:
  /// `scenario` outlives the object.
  explicit InvariantChecker(const Scenario& scenario) : scenario_(scenario) {}

  const Course& course() const { return course_; }
  /// A process begins where this was: with groups that have so many tokens.
  void begin(Course course, int64_t num_tokens);

  // Each throws BugError with what is wrong.

  void given_out(const std::vector<Group>& groups);
  void dropped(const Group& group, const std::string& reason);
  /// `version`: the newest that the engines have. `discarded`: of StepEnd.
  void collected(int64_t step, const std::vector<Group>& groups, WeightVersion version,
                 int64_t discarded);
  void trained(int64_t step, const std::vector<buffer::LedgerRecord>& outcomes);
  /// Nothing is under way any more, and the ledger has its totals. `waiting`: what the buffer has; `num_sampled`: by the engines for
  /// training in this process.
  void ended(const std::filesystem::path& ledger, const std::vector<Group>& waiting,
             int64_t num_sampled);

  int64_t tokens_trained() const { return tokens_trained_; }
  int64_t tokens_discarded() const { return tokens_discarded_; }
  /// Sum over trained tokens of the updates between them and their step.
  int64_t lag_sum() const { return lag_sum_; }
  int64_t largest_lag() const { return largest_lag_; }

 private:
  void check_tokens(const Sample& sample, WeightVersion version);
  void end(int64_t ordinal, buffer::Outcome outcome);

  const Scenario& scenario_;
  Course course_;
  // Of this process.
  std::map<int64_t, int64_t> turn_of_;  // ordinal: when it was given out last
  int64_t num_turns_ = 0;
  int64_t last_turn_ = 0;  // of the groups of the steps so far
  int64_t tokens_before_ = 0;
  int64_t tokens_trained_ = 0;
  int64_t tokens_dropped_ = 0;
  int64_t tokens_discarded_ = 0;
  int64_t lag_sum_ = 0;
  int64_t largest_lag_ = 0;
};

/// Response tokens of all samples.
int64_t num_tokens(const std::vector<Group>& groups);

}  // namespace slime::simulate
