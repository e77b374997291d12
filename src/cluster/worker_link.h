#pragma once

/// A worker's connection to the controller: tasks in, answers out, and a thread that sends heartbeats and
/// rotates the worker's log. When the controller is gone the process ends at once, whatever it is doing: its
/// results have no receiver, and the system is told to kill it too when its parent dies.

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cluster/run_identity.h"
#include "cluster/worker_frames.h"
#include "net/frame_channel.h"

namespace slime::cluster {

class WorkerLink final {
 public:
  /// `descriptor` is the socket that the controller left open in this process; `identity` what it
  /// gave it to say first. Throws ConfigError when it is none: the command was not started by a
  /// controller.
  WorkerLink(int descriptor, const RunIdentity& identity);
  ~WorkerLink();
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  /// Waits for a task; nothing when the controller says stop.
  std::optional<std::string> next_task();
  void answer(std::string_view payload);
  /// The last thing a worker says before it gives up.
  void report_failure(FailureCause cause, const std::string& message);
  /// Waits until the controller ends this process, which it does once it knows who is to blame.
  [[noreturn]] void wait_for_end();

  /// What heartbeats tell from now on; any thread.
  void set_progress(Progress progress);

 private:
  void beat();
  void send(WorkerFrame type, std::string_view payload);

  net::FrameChannel channel_;
  std::mutex mutex_;  // guards progress_ and stopping_
  std::condition_variable stops_;
  Progress progress_;
  bool stopping_ = false;
  std::thread heart_;
};

}  // namespace slime::cluster
