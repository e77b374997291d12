#pragma once

/// The empty jail, built by bubblewrap: name spaces of its own for users, processes, mounts, network,
/// hostname and inter-process communication, and in them one idle process.
///
///   /usr /bin /lib ...   the system's, read-only; of /etc only what programs need to run
///   /work                the only place to write: in memory, of limited size, empty; /tmp, /dev/shm
///                        and the home folder lie in it
///   /proc                of its own processes
///   no network (only its own loopback), no devices but null, zero, full, random, urandom,
///                        and those of one GPU where that was asked for
///
/// The first process is `cat`, which reads a pipe that this process holds. However this process ends
/// the pipe closes, cat ends, and with the first process of a process space the kernel ends all
/// others in it. Code inside cannot keep that process from ending: it has a capability that they
/// lack, so the kernel lets them neither trace it nor write to its memory, and the first process of
/// a space takes no signal from within.

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "sandbox/entry.h"
#include "sandbox/gpu.h"
#include "sandbox/kernel_memory.h"
#include "sandbox/limits.h"

namespace slime::sandbox {

class Jail final {
 public:
  /// `readable`: folders and files of this machine that are shown in it, read-only, beside the
  /// system's; absolute. `gpu`: files of a GPU, if it has one. Throws ConfigError when bubblewrap is missing or the system does not let
  /// this user make name spaces; the message says what to install or set.
  Jail(const Limits& limits, const std::vector<std::filesystem::path>& readable,
       const std::optional<GpuFiles>& gpu);
  /// kill(), and gives back what it held.
  ~Jail();
  Jail(const Jail&) = delete;
  Jail& operator=(const Jail&) = delete;

  /// A pidfd of its first process: readable once everything in the jail is gone.
  int first_process() const { return first_.get(); }
  const Person& person() const { return person_; }
  /// The jail's /proc and /work, as folders.
  int processes_folder() const { return processes_.get(); }
  int work_folder() const { return work_.get(); }
  /// What its sockets hold; any thread.
  SocketListing& sockets() const { return *sockets_; }

  /// Kills everything in it, and waits until the kernel says that nothing is left; any thread.
  void kill();

 private:
  void start(const std::vector<std::string>& words, const std::vector<int>& handed,
             std::chrono::milliseconds patience);
  [[noreturn]] void fail(const std::string& what);
  void close();

  Person person_;
  pid_t bubblewrap_ = -1;
  Descriptor first_;
  Descriptor lifeline_;  // its first process reads this
  Descriptor errors_;    // what bubblewrap says when it fails
  Descriptor processes_;
  Descriptor work_;
  std::unique_ptr<SocketListing> sockets_;
};

}  // namespace slime::sandbox
