#pragma once

/// Checks of processor, memory and limits, from the files in which Linux tells of them.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "doctor/check.h"

namespace slime::doctor {

/// Folders that the checks read; tests have their own.
struct SystemFiles {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroup = "/sys/fs/cgroup";
  std::filesystem::path shared_memory = "/dev/shm";
};

/// Limits of the control group of this process; nothing: there is no limit, or it cannot be read.
struct GroupLimits {
  std::optional<double> cores;
  std::optional<int64_t> memory_bytes;
  int64_t memory_used = 0;
};
/// The strictest of version 2's groups from this process's own to the root, else those of version 1.
GroupLimits group_limits(const SystemFiles& files);

Check check_processor(const SystemFiles& files);
/// Memory of the machine and of the control group, and /dev/shm.
Checks check_memory(const SystemFiles& files);
/// Limits of this process (`ulimit`): open files, processes, file size, address space.
Checks check_limits();

}  // namespace slime::doctor
