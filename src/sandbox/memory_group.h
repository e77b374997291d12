#pragma once

/// A control group (cgroup v2) of one sandbox: the kernel's own bound on the memory of all its
/// processes, between two looks at what they use and behind the last one.
///
/// A group is made where this process may make one without moving anything else: below the nearest
/// folder from its own group upwards that hands the memory controller down (cgroup.subtree_control)
/// and lets it write. That is so for root on a system with cgroup v2, and for users below a systemd
/// that delegates (`systemd-run --user --scope slime sandbox ...`). Elsewhere there is none, and the
/// looks (sandbox/usage.h) are all there is.
///
/// The kernel charges the pages of files in /work to the group too, so its bound is memory and files
/// together; the limit of memory alone stays with the looks.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "core/descriptor.h"
#include "core/expected.h"

namespace slime::sandbox {

/// Where the system has its control groups. Tests give folders of their own.
struct ControlGroups {
  std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path own =
      "/proc/self/cgroup";  // the line "0::/PATH" names this process's group
};

class MemoryGroup final {
 public:
  /// Empty groups that killed processes left next to it are removed. The Error says why there can be
  /// none.
  static Expected<MemoryGroup> make(const ControlGroups& groups, int64_t limit_bytes);

  MemoryGroup(MemoryGroup&& other) noexcept
      : folder_(std::exchange(other.folder_, {})), entrance_(std::move(other.entrance_)) {}
  MemoryGroup& operator=(MemoryGroup&&) = delete;
  /// Kills what is in it and removes it.
  ~MemoryGroup();

  const std::filesystem::path& folder() const { return folder_; }
  /// A process that writes "0" here belongs to the group, and so do the processes it starts then.
  int entrance() const { return entrance_.get(); }
  /// Whether the kernel has ended a process of it because there was no memory left.
  bool was_exceeded() const;

 private:
  MemoryGroup(std::filesystem::path folder, Descriptor entrance)
      : folder_(std::move(folder)), entrance_(std::move(entrance)) {}

  std::filesystem::path folder_;
  Descriptor entrance_;  // cgroup.procs
};

}  // namespace slime::sandbox
