#include "sandbox/memory_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <thread>

namespace slime::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "slime-sandbox-";
constexpr std::chrono::milliseconds kRemovalPause{5};
constexpr int kRemovalTries = 400;

/// The group that a process is in, below the root; nothing under cgroup v1 alone.
Expected<fs::path> own_group(const fs::path& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    // One above the root of a name space is out of reach.
    if (line.starts_with("0::/") && line.find("/..") == std::string::npos)
      return fs::path(line.substr(4));
  }
  return failure(fmt::format("{} names no group of version 2", file.string()));
}

bool hands_memory_down(const fs::path& folder) {
  std::ifstream words(folder / "cgroup.subtree_control");
  for (std::string word; words >> word;) {
    if (word == "memory") return true;
  }
  return false;
}

/// 0 or errno.
int write_to(const fs::path& file, std::string_view text) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return errno;
  const ssize_t count = ::write(descriptor, text.data(), text.size());
  const int error = count < 0 ? errno : 0;
  ::close(descriptor);
  return error;
}

/// Those of processes that were killed; a group with processes in it is not removed by this.
void remove_left_behind(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    pid_t process = 0;
    const char* digits = name.data() + kPrefix.size();
    const auto [rest, status] = std::from_chars(digits, name.data() + name.size(), process);
    const bool is_dead =
        status == std::errc() && process > 0 && ::kill(process, 0) != 0 && errno == ESRCH;
    if (is_dead) ::rmdir(entry->path().c_str());
  }
}

Expected<fs::path> make_folder(const ControlGroups& groups) {
  static std::atomic<int64_t> made{0};
  const Expected<fs::path> own = own_group(groups.own);
  if (!own) return own;
  std::string refused;
  for (fs::path below = *own;; below = below.parent_path()) {
    const fs::path parent = below.empty() ? groups.root : groups.root / below;
    if (hands_memory_down(parent)) {
      remove_left_behind(parent);
      const fs::path folder = parent / fmt::format("{}{}-{}", kPrefix, ::getpid(), ++made);
      if (::mkdir(folder.c_str(), 0755) == 0) return folder;
      refused += fmt::format("; {}: {}", parent.string(), std::strerror(errno));
    }
    if (below.empty()) break;
  }
  return failure(refused.empty()
                     ? fmt::format("no group from {} upwards hands the memory controller down",
                                   (groups.root / *own).string())
                     : refused.substr(2));
}

}  // namespace

Expected<MemoryGroup> MemoryGroup::make(const ControlGroups& groups, int64_t limit_bytes) {
  Expected<fs::path> folder = make_folder(groups);
  if (!folder) return tl::make_unexpected(folder.error());
  MemoryGroup group(*folder, Descriptor());
  const int limited = write_to(*folder / "memory.max", fmt::format("{}", limit_bytes));
  // Without swap, where the kernel has such a bound.
  if (fs::exists(*folder / "memory.swap.max")) write_to(*folder / "memory.swap.max", "0");
  const fs::path entrance = *folder / "cgroup.procs";
  group.entrance_ = Descriptor(::open(entrance.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  const int error = limited != 0 ? limited : group.entrance_.get() < 0 ? errno : 0;
  if (error != 0) return failure(fmt::format("{}: {}", folder->string(), std::strerror(error)));
  return group;
}

MemoryGroup::~MemoryGroup() {
  if (folder_.empty()) return;
  entrance_.reset();
  if (fs::exists(folder_ / "cgroup.kill")) write_to(folder_ / "cgroup.kill", "1");
  // Processes that were killed may take a moment to leave it.
  for (int attempt = 0; attempt < kRemovalTries && ::rmdir(folder_.c_str()) != 0; ++attempt) {
    if (errno != EBUSY) break;
    std::this_thread::sleep_for(kRemovalPause);
  }
}

bool MemoryGroup::was_exceeded() const {
  std::ifstream words(folder_ / "memory.events");
  std::string name;
  for (int64_t count = 0; words >> name >> count;) {
    if (name == "oom_kill") return count > 0;
  }
  return false;
}

}  // namespace slime::sandbox
