#include "doctor/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "kernels/cpu/processor.h"

namespace slime::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kGibibyte = int64_t{1} << 30;
/// Less than a tiny run with its report needs.
constexpr int64_t kLittleMemory = 2 * kGibibyte;
/// Tensors of users' functions travel in it.
constexpr int64_t kLittleSharedMemory = 256 * kMebibyte;
/// A connection and a file each: engines, plug-in hosts, clients.
constexpr rlim_t kFewFiles = 1024;
/// Threads count as processes.
constexpr rlim_t kFewProcesses = 1024;

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::optional<int64_t> number_in(const fs::path& file) {
  std::istringstream words(first_line(file));
  int64_t number = 0;
  if (!(words >> number)) return std::nullopt;
  return number;
}

void tighten(auto& bound, auto value) {
  if (!bound || value < *bound) bound = value;
}

/// This process's folder in a hierarchy: "0::/user.slice" in /proc/self/cgroup.
std::string own_group(const SystemFiles& files, std::string_view controller) {
  std::ifstream lines(files.proc / "self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string_view names = std::string_view(line).substr(first + 1, second - first - 1);
    if (names == controller) return line.substr(second + 1);
  }
  return "/";
}

void read_group(const fs::path& folder, GroupLimits& limits) {
  std::istringstream cpu(first_line(folder / "cpu.max"));
  double quota = 0, period = 0;
  if (cpu >> quota >> period && period > 0) tighten(limits.cores, quota / period);
  if (const auto bytes = number_in(folder / "memory.max")) {
    if (!limits.memory_bytes || *bytes < *limits.memory_bytes)
      limits.memory_used = number_in(folder / "memory.current").value_or(0);
    tighten(limits.memory_bytes, *bytes);
  }
}

/// KiB of a line of /proc/meminfo, as bytes.
int64_t memory_line(const SystemFiles& files, std::string_view name) {
  std::ifstream lines(files.proc / "meminfo");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name)) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  return 0;
}

std::string model_of_processor(const SystemFiles& files) {
  std::ifstream lines(files.proc / "cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != line.npos) return line.substr(colon + 2);
  }
  return "a processor without name";
}

std::string in_words(rlim_t limit) {
  return limit == RLIM_INFINITY ? "without limit" : std::to_string(limit);
}

}  // namespace

GroupLimits group_limits(const SystemFiles& files) {
  GroupLimits limits;
  if (fs::exists(files.cgroup / "cgroup.controllers")) {
    // In a container the folder of the group is the root, whatever its name outside is.
    fs::path folder = files.cgroup / own_group(files, "").substr(1);
    if (!fs::exists(folder)) folder = files.cgroup;
    for (;; folder = folder.parent_path()) {
      read_group(folder, limits);
      if (folder == files.cgroup || !folder.has_relative_path()) break;
      if (folder.string().size() <= files.cgroup.string().size()) break;
    }
    return limits;
  }
  const auto quota = number_in(files.cgroup / "cpu/cpu.cfs_quota_us");
  const auto period = number_in(files.cgroup / "cpu/cpu.cfs_period_us");
  if (quota && period && *quota > 0 && *period > 0)
    limits.cores = static_cast<double>(*quota) / static_cast<double>(*period);
  // Without a limit it is nearly 2^63.
  const auto bytes = number_in(files.cgroup / "memory/memory.limit_in_bytes");
  if (bytes && *bytes < (int64_t{1} << 60)) {
    limits.memory_bytes = *bytes;
    limits.memory_used = number_in(files.cgroup / "memory/memory.usage_in_bytes").value_or(0);
  }
  return limits;
}

Check check_processor(const SystemFiles& files) {
  namespace cpu = kernels::cpu;
  std::vector<std::string_view> sets;
  if (cpu::has_avx2()) sets.emplace_back("AVX2");
  if (cpu::has_avx512()) sets.emplace_back("AVX-512");
  if (cpu::has_tiles()) sets.emplace_back("AVX-512 BF16");
  if (cpu::has_amx()) sets.emplace_back("AMX");
  const unsigned cores = std::thread::hardware_concurrency();
  Check check{.area = "processor",
              .what = fmt::format("{} cores, {}; {}", cores, model_of_processor(files),
                                  sets.empty() ? std::string("no AVX2")
                                               : fmt::format("{}", fmt::join(sets, ", ")))};
  const GroupLimits limits = group_limits(files);
  if (limits.cores && *limits.cores < cores) {
    check.state = State::kNote;
    check.what += fmt::format("; the control group allows {:.3g} of them", *limits.cores);
    check.cure = fmt::format("--num-threads {}: more threads than that wait for one another",
                             std::max(1, static_cast<int>(*limits.cores)));
  } else if (!cpu::has_avx2()) {
    check.state = State::kNote;
    check.cure = "it works, several times slower than with AVX2 (processors since 2013)";
  }
  return check;
}

Checks check_memory(const SystemFiles& files) {
  Checks checks;
  const int64_t total = memory_line(files, "MemTotal");
  int64_t available = memory_line(files, "MemAvailable");
  Check memory{
      .area = "memory",
      .what = fmt::format("{} of {} are available", in_bytes(static_cast<double>(available)),
                          in_bytes(static_cast<double>(total)))};
  const GroupLimits limits = group_limits(files);
  if (limits.memory_bytes && *limits.memory_bytes < total) {
    available = std::min(available, *limits.memory_bytes - limits.memory_used);
    memory.what += fmt::format("; the control group allows {}, of which {} are used",
                               in_bytes(static_cast<double>(*limits.memory_bytes)),
                               in_bytes(static_cast<double>(limits.memory_used)));
  }
  if (available < kLittleMemory) {
    memory.state = State::kNote;
    memory.cure =
        "enough for tiny models only: a run needs about 18 bytes for each weight that it trains "
        "(slime inspect MODEL says how many that is)";
  }
  checks.push_back(std::move(memory));

  struct statvfs shared {};
  if (::statvfs(files.shared_memory.c_str(), &shared) != 0) {
    checks.push_back({.area = "memory",
                      .state = State::kNote,
                      .what = fmt::format("{} cannot be looked at", files.shared_memory.string()),
                      .cure = "functions of yours that get tensors need it"});
  } else {
    const auto bytes = static_cast<int64_t>(shared.f_blocks * shared.f_frsize);
    Check check{.area = "memory",
                .what = fmt::format("{} has {}", files.shared_memory.string(),
                                    in_bytes(static_cast<double>(bytes)))};
    if (bytes < kLittleSharedMemory) {
      check.state = State::kNote;
      check.cure = "tensors for functions of yours travel in it; docker run --shm-size 8g";
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

Checks check_limits() {
  Checks checks;
  rlimit files{}, processes{}, sizes{}, space{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_NPROC, &processes);
  ::getrlimit(RLIMIT_FSIZE, &sizes);
  ::getrlimit(RLIMIT_AS, &space);
  Check check{.area = "limits",
              .what = fmt::format("open files {} (up to {}), processes and threads {}",
                                  in_words(files.rlim_cur), in_words(files.rlim_max),
                                  in_words(processes.rlim_cur))};
  if (files.rlim_max < kFewFiles || processes.rlim_cur < kFewProcesses) {
    check.state = State::kNote;
    check.cure = "servers and runs with many workers want more: ulimit -n 65536, ulimit -u 65536";
  }
  checks.push_back(std::move(check));
  if (sizes.rlim_cur != RLIM_INFINITY) {
    checks.push_back({.area = "limits",
                      .state = State::kNote,
                      .what = fmt::format("a file may have {} at most",
                                          in_bytes(static_cast<double>(sizes.rlim_cur))),
                      .cure = "checkpoints are larger: ulimit -f unlimited"});
  }
  if (space.rlim_cur != RLIM_INFINITY) {
    checks.push_back({.area = "limits",
                      .state = State::kNote,
                      .what = fmt::format("a process may map {} at most",
                                          in_bytes(static_cast<double>(space.rlim_cur))),
                      .cure = "CUDA reserves far more than it uses: ulimit -v unlimited"});
  }
  return checks;
}

}  // namespace slime::doctor
