#pragma once

/// Index of a run's rollout files: an entry per sample, of which tables are made without reading texts.
///
/// A file is replaced or removed, never changed, so one of the same size and time is read once. Entries of
/// all runs together have a limit; beyond it the steps that were not asked for longest are forgotten, and
/// read again when they are.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "view/sample_entry.h"

namespace slime::view {

/// Samples of a step, in the order of its file.
struct IndexedStep {
  int64_t step = 0;
  std::filesystem::path path;
  uint64_t size_bytes = 0;
  std::filesystem::file_time_type time;
  std::vector<SampleEntry> entries;
  int64_t num_bad_lines = 0;
  // Over the entries.
  int64_t num_groups = 0;
  int64_t num_dead_groups = 0;  // of two samples or more, with equal rewards
  double mean_reward = 0;       // of those that have one; NaN: none has
};

/// Reads a whole file. One that is gone has no entries.
IndexedStep index_step(const std::filesystem::path& path, int64_t step,
                       std::string_view reward_key);

/// The line of an entry; empty when the file is another one by now.
std::string line_of(const IndexedStep& step, const SampleEntry& entry);

/// Limit and current number of entries, shared by all indexes of a process.
struct IndexBudget {
  std::size_t max_entries = std::size_t{2} << 20;  // about 130 MB
  std::atomic<std::size_t> used = 0;
  std::atomic<uint64_t> clock = 0;  // grows with each use of a step
};

/// One class because requests and the indexing thread share one table of steps.
class SampleIndex {
 public:
  using Step = std::shared_ptr<const IndexedStep>;

  /// `folder`: of the run. `budget` outlives the index.
  SampleIndex(std::filesystem::path folder, IndexBudget& budget);
  ~SampleIndex();
  SampleIndex(const SampleIndex&) = delete;
  SampleIndex& operator=(const SampleIndex&) = delete;

  /// Looks at the folder, at most twice a second.
  void refresh();
  /// Indexes the newest step that has no index and fits the budget. False: there is none.
  bool index_one();

  /// A step's index, made now where it is not there; null without a file.
  Step step(int64_t step);
  /// Those that are indexed, by step.
  std::vector<Step> steps();
  /// Steps that have files, ascending.
  std::vector<int64_t> known_steps();
  /// Grows with each change of what steps() returns.
  uint64_t version() const { return version_; }
  /// Of the run's settings.
  std::string reward_key();
  const std::filesystem::path& folder() const { return folder_; }

 private:
  struct Slot {
    std::filesystem::path path;
    uint64_t size_bytes = 0;
    std::filesystem::file_time_type time;
    Step index;  // null: not indexed
    uint64_t last_use = 0;
  };

  void drop(Slot& slot);                              // under mutex_
  bool make_room(std::size_t entries, bool forgets);  // under mutex_
  Step put(int64_t step, IndexedStep indexed, bool forgets);

  const std::filesystem::path folder_;
  IndexBudget& budget_;
  std::atomic<uint64_t> version_ = 0;
  std::mutex refresh_;  // taken before mutex_; who comes second finds what the first one found
  std::chrono::steady_clock::time_point due_{};  // guarded by refresh_
  std::mutex mutex_;
  std::map<int64_t, Slot> slots_;  // guarded by mutex_
};

}  // namespace slime::view
