#pragma once

/// A sandbox for model-written code: commands run in it one after the other or at the same time, and
/// find the files that earlier ones left. Its end takes everything in it along.
///
///   Sandbox sandbox({.limits = {.time = 5s}});
///   sandbox.write("/work/main.py", "print(6 * 7)");
///   const Outcome outcome = sandbox.run({.words = {"python3", "/work/main.py"}});
///   // outcome.output == "42\n", outcome.ending == Ending::kExited
///
/// Nothing ever runs outside of bubblewrap: where it cannot work there is no sandbox, only a
/// ConfigError (docs/sandbox.md has what is kept from code in it, and how).
///
/// A command that reaches a limit of its own (time, output) is ended with its process group. One that
/// makes the sandbox reach a limit of all (memory, number of files) ends the sandbox.

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "sandbox/entry.h"
#include "sandbox/gpu.h"
#include "sandbox/jail.h"
#include "sandbox/limits.h"
#include "sandbox/memory_group.h"

namespace slime::sandbox {

struct SandboxConfig {
  Limits limits;
  std::vector<std::filesystem::path> readable;  // shown beside the system's folders, read-only
  std::optional<int> gpu = {};                  // N of /dev/nvidiaN, the one GPU that it shows
  ControlGroups groups = {};
  GpuPlaces gpu_places = {};
};

/// Whether there can be a sandbox here.
struct Availability {
  std::string problem;       // the sentence that says why not; empty: there can
  std::string memory_bound;  // Sandbox::memory_bound()
};
Availability availability(const SandboxConfig& config = {});
/// The sentence that says why there can be no sandbox here; nothing where there can.
std::optional<std::string> why_unavailable();

class Sandbox final {
 public:
  /// Throws ConfigError where there is no bubblewrap, no permission or no such GPU, and for limits out
  /// of range.
  explicit Sandbox(SandboxConfig config = {});
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  const Limits& limits() const { return config_.limits; }
  /// PATH, HOME, LANG and what else a program expects; commands get it unless told otherwise.
  std::vector<std::string> usual_environment() const;
  /// What keeps memory below its limit: "the control group /sys/fs/cgroup/..., and looks", or "looks
  /// alone (no control group: ...)".
  std::string memory_bound() const;

  /// Runs a command to its end; any thread. `time` and `output_bytes` of `limits` may be this
  /// command's own. An empty environment stands for the usual one.
  Outcome run(Command command, const Limits& limits);
  Outcome run(Command command) { return run(std::move(command), config_.limits); }

  /// Files are written and read by a process in the sandbox, so a path leads nowhere else. Folders
  /// that lack are made. The error is what cat says.
  Expected<void> write(const std::string& path, std::string_view bytes);
  Expected<std::string> read(const std::string& path, int64_t limit_bytes);

  /// Kills everything in it and waits until it is gone.
  void end(const std::string& reason = "it was closed");
  bool is_over() const { return is_over_; }

 private:
  Outcome over();
  /// What all processes use together.
  struct Look {
    std::optional<Ending> limit_reached;
    bool is_close = false;  // to one
  };
  Look look(const Limits& limits) const;

  SandboxConfig config_;
  std::optional<GpuFiles> gpu_;
  Expected<MemoryGroup> group_;  // outlives the jail
  Jail jail_;
  std::mutex end_mutex_;
  std::string end_reason_;  // guarded by end_mutex_
  std::atomic<bool> is_over_{false};
};

}  // namespace slime::sandbox
