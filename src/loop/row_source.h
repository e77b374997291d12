#pragma once

/// Groups of supervised and preference training: rows of the data set, trained on as they are. No
/// engine, no reward.

#include <cstdint>
#include <set>
#include <string>

#include "buffer/data_source.h"
#include "config/run_config.h"
#include "loop/group_source.h"
#include "loop/outcome_log.h"
#include "report/recorder.h"
#include "setup/supervised.h"

namespace slime::loop {

class RowSource final : public GroupSource {
 public:
  /// References outlive the object.
  RowSource(const config::RunConfig& config, const setup::ModelText& text,
            buffer::DataSource& prompts, OutcomeLog& outcomes, report::Recorder& recorder);

  /// Rows without a trained token, and rows that exceed a limit, are filtered: those of a stream, and
  /// of users' functions; a data set has none any more. Throws ConfigError when that is all of them.
  report::Collected take(int64_t step) override;

 private:
  void tell_once(const std::string& reason);

  const config::RunConfig& config_;
  setup::SupervisedRows rows_;
  std::set<std::string> told_;  // reasons of rows that were left out
  buffer::DataSource& prompts_;
  OutcomeLog& outcomes_;
  report::Recorder& recorder_;
};

}  // namespace slime::loop
