#pragma once

/// Groups of supervised and preference training: rows of the data set, trained on as they are. No
/// engine, no reward.

#include <cstdint>
#include <set>
#include <string>

#include "buffer/data_source.h"
#include "config/run_config.h"
#include "loop/fates.h"
#include "loop/group_source.h"
#include "loop/recorder.h"
#include "loop/supervised.h"

namespace slime::loop {

class RowSource final : public GroupSource {
 public:
  /// References outlive the object.
  RowSource(const config::RunConfig& config, const ModelText& text, buffer::DataSource& prompts,
            Fates& fates, Recorder& recorder);

  /// Rows without a trained token, and rows that exceed a limit, are filtered: those of a stream, and
  /// of users' functions; a data set has none any more. Throws ConfigError when that is all of them.
  Collected take(int64_t step) override;

 private:
  void tell_once(const std::string& reason);

  const config::RunConfig& config_;
  SupervisedRows rows_;
  std::set<std::string> told_;  // reasons of rows that were left out
  buffer::DataSource& prompts_;
  Fates& fates_;
  Recorder& recorder_;
};

}  // namespace slime::loop
