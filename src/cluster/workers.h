#pragma once

/// Worker processes of a run, on whatever hosts: started, watched, ended.
///
/// A thread watches them. A worker fails when its process ends, when it says so, or when it has not
/// been heard from for too long. The first failure is final: all workers are killed, so that
/// whoever waits for them in a collective is set free, and failure() says which rank it was, its
/// process, how it ended and what it printed last. If nobody asks for that in time, the last resort
/// is called.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster/launcher.h"
#include "cluster/run_identity.h"
#include "cluster/worker_frames.h"
#include "core/clock.h"
#include "net/frame_channel.h"

namespace slime::cluster {

struct WorkersConfig {
  std::string noun = "rank";  // what a worker is, in messages and in the names of logs
  int first_rank = 1;
  int count = 1;
  /// Program and arguments; an empty program: this one. The connection is descriptor 3.
  std::vector<std::string> command = {"", "worker"};
  /// In the environment of the processes. With a token a worker's connection begins with its epoch.
  RunIdentity identity;
  bool has_data = false;             // each has a second connection, as descriptor 4
  std::vector<WorkerPlace> places;   // of each; empty: all on this host, with all its devices
  std::filesystem::path log_folder;  // rank_1.log holds what rank 1 prints
  std::chrono::milliseconds silence_limit{20'000};  // without a heartbeat
  std::chrono::milliseconds start_limit{60'000};    // until the first one, where that is more
  std::chrono::milliseconds stop_limit{3'000};      // to end once asked; then they are killed
  std::chrono::milliseconds blame_limit{3'000};     // in which the cause of a lost connection shows
  /// How long a failure may go unnoticed by the owner before the last resort is called, with the
  /// message, on the watching thread.
  std::chrono::milliseconds notice_limit{10'000};
  std::function<void(const std::string&)> last_resort;
};

class Workers final {
 public:
  /// Starts the processes. `launcher` and `clock` outlive the object. Throws ConfigError when that
  /// fails, WorkerFailure when a node is not there.
  Workers(WorkersConfig config, Launcher& launcher, const Clock& clock);
  /// Asks the workers to stop, gives them a moment, kills them.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return static_cast<int>(workers_.size()); }
  /// The socket of a rank's second connection, which is the caller's from here on. Once.
  int take_data(int rank);
  /// Throws WorkerFailure, as do the following, or ConfigError where that is what a worker found.
  void send_task(int rank, std::string_view payload);
  /// Waits for the next answer of a rank.
  std::string answer(int rank, std::chrono::milliseconds timeout);
  /// Throws when a worker has failed.
  void check_alive();
  /// Set when a worker has failed.
  const std::atomic<bool>& has_failed() const { return has_failed_; }
  /// The caller could not reach the ranks (`what` says how) and has begun so many collectives:
  /// throws with the worker to blame, or, when all are alive, with where each of them is.
  [[noreturn]] void blame(const std::string& what, int64_t num_collectives);

 private:
  struct Worker {
    int rank = 0;
    std::unique_ptr<WorkerProcess> process;  // null: it has ended
    std::string name;                        // of the process
    std::unique_ptr<net::FrameChannel> channel;
    int data = -1;
    // Guarded by mutex_.
    Clock::TimePoint heard;
    bool is_running = false;  // it has been heard from
    bool has_greeted = false;
    bool has_wrong_configuration = false;  // it said so as it failed
    Progress progress;
    std::deque<std::string> answers;
    std::string complaint;        // it could not reach its peers ...
    Clock::TimePoint complained;  // ... then
  };

  void start(Worker& worker, Launcher& launcher);
  void watch(const std::stop_token& stop);
  /// Empty: nothing is wrong.
  std::string take_frames(Worker& worker);
  std::string take_frame(Worker& worker, net::Frame frame);  // with mutex_ held
  std::string judge(Worker& worker);
  std::string describe(const Worker& worker, const std::string& what) const;
  /// How the process ended, once it has; waits a moment for that.
  std::string ending(Worker& worker);
  void fail(const std::string& message, bool is_configuration);
  void kill_all();
  void close_data();
  Worker& of_rank(int rank);

  WorkersConfig config_;
  const Clock& clock_;
  std::vector<Worker> workers_;
  std::mutex mutex_;
  std::condition_variable changed_;  // an answer, or a failure
  std::string failure_;              // guarded by mutex_
  bool is_configuration_ = false;    // guarded by mutex_; what the user gave is what failed
  bool is_noticed_ = false;          // guarded by mutex_
  std::atomic<bool> has_failed_{false};
  std::jthread watcher_;
};

}  // namespace slime::cluster
