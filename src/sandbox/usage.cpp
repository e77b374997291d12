#include "sandbox/usage.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/proc_files.h"

namespace slime::sandbox {
namespace {

/// Of /proc/N/statm, in pages.
struct Mapped {
  int64_t all = 0;
  int64_t own = 0;  // private ones: writable ones, or those that are there without a file
};
Mapped mapped_in(std::string_view statm) {
  std::array<int64_t, 6> fields{};
  for (int64_t& field : fields) {
    field = number_at(statm, 0);
    const std::size_t space = statm.find(' ');
    if (space == std::string_view::npos) return {};
    statm.remove_prefix(space + 1);
  }
  const auto [all, resident, shared, text, library, data] = fields;
  return {all, std::max(data, resident - shared)};
}

/// Sizes of shared mappings without a file, by their inode: one of several processes counts once.
///   7f00-7f40 rw-s 00000000 00:01 1057     /dev/zero (deleted)
void add_shared(std::string_view maps, std::map<int64_t, int64_t>& bytes_by_inode) {
  while (!maps.empty()) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(maps.size(), line.size() + 1));
    const std::size_t dash = line.find('-'), flags = line.find(' ');
    const std::size_t file = line.find("/dev/zero (deleted)");
    if (dash == std::string_view::npos || flags == std::string_view::npos ||
        file == std::string_view::npos || line.size() < flags + 5 || line[flags + 4] != 's')
      continue;
    const int64_t size = number_at(line, dash + 1, 16) - number_at(line, 0, 16);
    const std::size_t inode = line.find_last_of(' ', line.find_last_not_of(' ', file - 1));
    // A part of it may be all that one process has of it.
    int64_t& known = bytes_by_inode[number_at(line, inode)];
    known = std::max(known, size);
  }
}

}  // namespace

int64_t memory_in_use(int processes_folder, SocketListing& sockets, int64_t limit_bytes) {
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::vector<std::string> processes = numbered_in(processes_folder);
  Mapped sum;
  for (const std::string& process : processes) {
    const Mapped mapped = mapped_in(read_file(processes_folder, process + "/statm"));
    sum.all += mapped.all * page;
    sum.own += mapped.own * page;
  }
  int64_t used = 0;
  if (sum.all > limit_bytes) {
    std::map<int64_t, int64_t> shared;
    for (const std::string& process : processes)
      add_shared(read_file(processes_folder, process + "/maps"), shared);
    for (const auto& [inode, bytes] : shared) used += bytes;
  }
  const int64_t most_of_kernel =
      most_kernel_memory(processes_folder, processes, sum.all, limit_bytes);
  if (used + sum.own + most_of_kernel <= limit_bytes) return used;
  for (const std::string& process : processes) {
    const std::string text = read_file(processes_folder, process + "/smaps_rollup");
    used += (number_behind(text, "Pss_Anon:") + number_behind(text, "SwapPss:")) * 1024;
  }
  if (used + most_of_kernel <= limit_bytes) return used;
  return used + kernel_memory(processes_folder, processes, sockets, limit_bytes - used);
}

int64_t files_in_use(int work_folder) {
  struct statvfs room {};
  if (::fstatvfs(work_folder, &room) != 0) return 0;
  return static_cast<int64_t>(room.f_files - room.f_ffree);
}

}  // namespace slime::sandbox
