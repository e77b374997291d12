#include "sandbox/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace slime::sandbox {
namespace {

std::vector<std::string> processes_in(int folder) {
  std::vector<std::string> all;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return all;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(copy), &::closedir);
  if (entries == nullptr) {
    ::close(copy);
    return all;
  }
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name.find_first_not_of("0123456789") == std::string_view::npos) all.emplace_back(name);
  }
  return all;
}

/// "" for a process that has ended.
std::string read_file(int folder, const std::string& name) {
  std::string text;
  const int file = ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  std::array<char, 16'384> bytes{};
  ssize_t count = 0;
  while ((count = ::read(file, bytes.data(), bytes.size())) > 0)
    text.append(bytes.data(), static_cast<std::size_t>(count));
  ::close(file);
  return text;
}

int64_t number_at(std::string_view text, std::size_t at, int base = 10) {
  while (at < text.size() && text[at] == ' ') ++at;
  int64_t number = 0;
  if (at < text.size()) std::from_chars(text.data() + at, text.data() + text.size(), number, base);
  return number;
}

/// Of /proc/N/statm, in pages: the first is all that is mapped, the sixth what is private and
/// writable.
struct Mapped {
  int64_t all = 0;
  int64_t data = 0;
};
Mapped mapped_in(std::string_view statm) {
  std::array<int64_t, 6> fields{};
  for (int64_t& field : fields) {
    field = number_at(statm, 0);
    const std::size_t space = statm.find(' ');
    if (space == std::string_view::npos) return {};
    statm.remove_prefix(space + 1);
  }
  return {fields[0], fields[5]};
}

/// "Name:   12 kB" of smaps_rollup, in bytes.
int64_t bytes_of(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  return at == std::string_view::npos ? 0 : number_at(text, at + name.size()) * 1024;
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

int64_t memory_in_use(int processes_folder, int64_t limit_bytes) {
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::vector<std::string> processes = processes_in(processes_folder);
  Mapped sum;
  for (const std::string& process : processes) {
    const Mapped mapped = mapped_in(read_file(processes_folder, process + "/statm"));
    sum.all += mapped.all * page;
    sum.data += mapped.data * page;
  }
  int64_t used = 0;
  if (sum.all > limit_bytes) {
    std::map<int64_t, int64_t> shared;
    for (const std::string& process : processes)
      add_shared(read_file(processes_folder, process + "/maps"), shared);
    for (const auto& [inode, bytes] : shared) used += bytes;
  }
  if (used + sum.data > limit_bytes) {
    for (const std::string& process : processes) {
      const std::string text = read_file(processes_folder, process + "/smaps_rollup");
      used += bytes_of(text, "Pss_Anon:") + bytes_of(text, "SwapPss:");
    }
  }
  return used;
}

int64_t files_in_use(int work_folder) {
  struct statvfs room {};
  if (::fstatvfs(work_folder, &room) != 0) return 0;
  return static_cast<int64_t>(room.f_files - room.f_ffree);
}

}  // namespace slime::sandbox
