#pragma once

/// Groups of supervised and preference training: rows of the data set, trained on as they are. No
/// engine, no reward.

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

  /// Rows without a trained token are filtered. Throws ConfigError when that is all of them.
  Collected take(int64_t step) override;

 private:
  bool complete(Group& group) const;

  const config::RunConfig& config_;
  SupervisedRows rows_;
  buffer::DataSource& prompts_;
  Fates& fates_;
  Recorder& recorder_;
};

}  // namespace slime::loop
