#pragma once

/// The process of --view: `slime view RUN_DIR`, started by the run and ended with it.
///
/// A process of its own, at a low priority: what the page costs is not taken from the run's memory, and
/// what happens to it is a line of the run's display, not an error.

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace slime::report {

class ViewProcess {
 public:
  using Tell = std::function<void(const std::string& line)>;

  /// `port`: 0: the process picks one. `tell`: where the page is, or why there is none; from a thread
  /// of this object.
  ViewProcess(const std::filesystem::path& run_dir, int64_t port, Tell tell);
  /// Ends the process.
  ~ViewProcess();
  ViewProcess(const ViewProcess&) = delete;
  ViewProcess& operator=(const ViewProcess&) = delete;

  /// From now on `tell` hears the lines; null: nobody does. None is on its way when this returns.
  void tell_by(Tell tell);

 private:
  void start(const std::filesystem::path& run_dir, int64_t port);
  void watch();
  void say(const std::string& line);

  std::mutex mutex_;
  Tell tell_;  // guarded by mutex_
  int child_ = -1;
  int to_child_ = -1;    // its standard input: its end tells the process to end
  int from_child_ = -1;  // its standard output
  int stop_ = -1;        // an eventfd
  std::thread watch_;
};

}  // namespace slime::report
