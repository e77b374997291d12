#pragma once

/// Writes of adapters that clients saved by name for sampling: a thread that writes snapshots into the
/// store after the requests were answered (docs/decisions/0157-tinkers-own-client.md).
///
/// Until finish() has returned, the request of a save stays in the journal: a process that was killed
/// does it again. A save that cannot be written stays, and is tried again now and then.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/json.h"
#include "tinker/sampler.h"

namespace slime::tinker {

struct NamedSave {
  std::string model;                // id of the model whose request it is
  std::filesystem::path directory;  // that appears whole
  SharedSnapshot snapshot;          // of an adapter
  json::object run_file;            // as it was then (train::run_file)
};

/// Any thread.
class SaveWriter final {
 public:
  using Which = std::function<bool(const NamedSave&)>;

  /// `write` throws where it fails, with nothing left behind.
  explicit SaveWriter(std::function<void(const NamedSave&)> write,
                      std::chrono::milliseconds pause_after_failure = std::chrono::seconds(10));
  /// Writes what is left, each once more. What fails is told on stderr: the next process does it again.
  ~SaveWriter();
  SaveWriter(const SaveWriter&) = delete;
  SaveWriter& operator=(const SaveWriter&) = delete;

  /// Written in the order in which they are added.
  void add(NamedSave save);
  /// Folders that nobody reads any more, when there is nothing to write.
  void remove(const std::vector<std::filesystem::path>& folders);
  /// Until fewer than so many are left. Throws what write() threw where all of them failed.
  void wait_for_room(std::size_t most);
  /// Until those are written, at once also where they failed before. Throws what write() threw of the first that
  /// failed, when the others are written.
  void finish(const Which& which);
  /// Those are not written any more; one that is being written now is, before this returns.
  void drop(const Which& which);
  bool has(const Which& which) const;
  /// What is to be written there; null: nothing.
  SharedSnapshot find(const std::filesystem::path& directory) const;

 private:
  struct Entry {
    NamedSave save;
    std::exception_ptr problem;  // of the last try
    std::chrono::steady_clock::time_point next_try;
  };
  void run(const std::stop_token& stop);
  /// The one that is tried next, with the mutex held; end: there is none.
  std::list<Entry>::iterator next();
  // With the mutex held, which they give up meanwhile.

  void remove_unused(std::unique_lock<std::mutex>& lock);
  void try_to_write(std::list<Entry>::iterator entry, std::unique_lock<std::mutex>& lock);

  const std::function<void(const NamedSave&)> write_;
  const std::chrono::milliseconds pause_after_failure_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::list<Entry> entries_;
  const Entry* writing_ = nullptr;  // of those, while the mutex is given up for it
  std::vector<std::filesystem::path> unused_;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace slime::tinker
