#pragma once

/// The rollouts of a run as files: for the report, for --save-debug-rollout-data, and the batch of
/// a step that could not be trained (report/rollout_files.h has the form).
///
/// A thread writes them, so that the loop does not wait for JSON and disks. Files for the report are
/// bounded: of a large step as many whole groups as fit --rollout-files-mb-per-step, evenly spaced;
/// of all steps the newest that fit --rollout-files-gb; none of a step whose predecessors still wait
/// to be written. Dumps that the user asked for are whole, and the loop waits where they are behind.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "config/run_config.h"
#include "report/collected.h"
#include "report/run_folder.h"
#include "text/tokenizer/tokenizer.h"
#include "train/trainer.h"

namespace slime::report {

/// About as many bytes as a sample takes in a file for the report.
uint64_t report_bytes(const Sample& sample);

/// Which of groups with these sizes are written where `limit` bytes may be: all, or evenly spaced ones,
/// but one at least.
std::vector<std::size_t> groups_within(std::span<const uint64_t> sizes, uint64_t limit);

/// One class because one queue, with one bound on what waits, feeds the thread that writes all of them.
class RolloutWriter {
 public:
  /// `folder` and `tokenizer` outlive the object. `tell`: for people, from the thread that writes as
  /// well.
  RolloutWriter(const config::RunConfig& config, const RunFolder& folder,
                const text::Tokenizer& tokenizer, std::function<void(const std::string&)> tell);
  /// Writes what it was given.
  ~RolloutWriter();
  RolloutWriter(const RolloutWriter&) = delete;
  RolloutWriter& operator=(const RolloutWriter&) = delete;

  /// `report`: null for a step that was not trained. Throws ConfigError where an earlier dump could
  /// not be written.
  void write(int64_t step, const Collected& collected, const train::TrainReport* report);
  /// The batch of a step whose gradients were not finite. Returns the file.
  std::filesystem::path write_skipped(int64_t step, const Collected& collected);

  /// Waits until all is written. Throws as write().
  void drain();

 private:
  struct Job {
    std::filesystem::path path;
    int64_t step = 0;
    std::vector<Group> groups;
    std::vector<std::vector<float>> log_probs;  // of the trainer, by sample; empty: not known
    uint64_t bytes = 0;                         // about; what it holds while it waits
    bool is_for_report = false;
  };

  void run();
  void put(Job job);
  void write_file(const Job& job);
  void keep_newest();
  void tell_once(bool& told, const std::string& text) const;
  void throw_failure();

  const RunFolder& folder_;
  const text::Tokenizer& tokenizer_;
  const std::function<void(const std::string&)> tell_;
  const std::string dump_path_;  // --save-debug-rollout-data; empty: none
  const bool writes_for_report_;
  const double step_megabytes_;                   // --rollout-files-mb-per-step
  const double all_gigabytes_;                    // --rollout-files-gb
  bool told_share_ = false, told_busy_ = false;   // the loop's thread's
  bool told_full_ = false, told_failed_ = false;  // the writing thread's

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;        // guarded by mutex_, as what follows; the first is being written
  uint64_t waiting_bytes_ = 0;  // of them
  bool ends_ = false;
  std::exception_ptr failure_;  // of a dump
  std::jthread thread_;         // last: it uses all of it
};

}  // namespace slime::report
