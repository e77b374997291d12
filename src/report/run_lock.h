#pragma once

/// Lock of a run's folder, into which one process at a time writes: an advisory lock (flock) on FOLDER/lock,
/// where the file system has locks.
///
/// The kernel gives the lock back when the process ends, however it ends; the file stays, because
/// removing it would race with a process that is about to lock it (report/made_folders.h says when it
/// goes all the same). Its content is for people:
///
///   {"pid": 4711, "host": "node3", "started": "2026-11-23 03:44:42 UTC"}

#include <filesystem>
#include <string>

namespace slime::report {

class RunLock {
 public:
  /// `folder` exists; `flag` is what the user chose it by, for the message. Throws ConfigError that
  /// says who holds the lock when another process does, and when the file cannot be written.
  RunLock(const std::filesystem::path& folder, const std::string& flag);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// False on a file system without locks: there a second process is not noticed.
  bool keeps_others_out() const { return keeps_others_out_; }

 private:
  int descriptor_;
  bool keeps_others_out_ = false;
};

}  // namespace slime::report
