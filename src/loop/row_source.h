#pragma once

/// Groups of supervised and preference training: rows of the data set, trained on as they are. No
/// engine, no reward.

#include <cstdint>

#include "buffer/data_source.h"
#include "config/run_config.h"
#include "loop/fates.h"
#include "loop/group_source.h"
#include "loop/recorder.h"
#include "loop/supervised.h"

namespace slime::loop {

class RowSource final : public GroupSource {
 public:
  /// References outlive the object. Throws ConfigError for a mask type that cannot read the
  /// template.
  RowSource(const config::RunConfig& config, const ModelText& text, buffer::DataSource& prompts,
            Fates& fates, Recorder& recorder);

  /// Rows without a trained token, and rows longer than the model's positions, are filtered. Throws ConfigError when that is all of them.
  Collected take(int64_t step) override;

 private:
  bool complete(Group& group) const;
  bool fits(const Group& group);

  const config::RunConfig& config_;
  SupervisedRows rows_;
  const int64_t max_positions_;
  bool has_told_of_length_ = false;
  buffer::DataSource& prompts_;
  Fates& fates_;
  Recorder& recorder_;
};

}  // namespace slime::loop
