#pragma once

/// The rollouts of a run as files: for the report, for --save-debug-rollout-data, and the batch of
/// a step that could not be trained (loop/rollout_files.h has the form).

#include <cstdint>
#include <filesystem>
#include <string>

#include "config/run_config.h"
#include "loop/group_source.h"
#include "loop/run_folder.h"
#include "text/tokenizer/tokenizer.h"
#include "train/trainer.h"

namespace slime::loop {

class RolloutWriter {
 public:
  /// `folder` and `tokenizer` outlive the object.
  RolloutWriter(const config::RunConfig& config, const RunFolder& folder,
                const text::Tokenizer& tokenizer);

  /// `report`: null for a step that was not trained.
  void write(int64_t step, const Collected& collected, const train::TrainReport* report) const;
  /// The batch of a step whose gradients were not finite. Returns the file.
  std::filesystem::path write_skipped(int64_t step, const Collected& collected) const;

 private:
  const RunFolder& folder_;
  const text::Tokenizer& tokenizer_;
  std::string dump_path_;  // --save-debug-rollout-data; empty: none
  bool writes_for_report_;
};

}  // namespace slime::loop
