#include "plugin/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

namespace slime::plugin {
namespace {

struct Row {
  TreeProcess process;
  pid_t parent = 0;
  pid_t session = 0;
};

/// The beginning of a file of /proc; empty for a process that has ended.
std::string content_of(const char* path) {
  std::array<char, 4096> bytes;
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t count = ::read(file, bytes.data(), bytes.size());
  ::close(file);
  return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

template <typename Number>
Number next_number(const char*& at) {
  char* end = nullptr;
  const auto number = static_cast<Number>(std::strtoull(at, &end, 10));
  at = end;
  return number;
}

/// proc(5): the name of the program stands in parentheses and may hold anything; state, parent, group and
/// session follow, the start is field 22, and resident pages are field 24. False for one that has ended.
bool read_row(const std::string& text, Row& row) {
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 3 >= text.size()) return false;
  const char state = text[end + 2];
  const char* at = text.c_str() + end + 3;
  row.parent = next_number<pid_t>(at);
  next_number<pid_t>(at);  // its group
  row.session = next_number<pid_t>(at);
  for (int field = 7; field < 22; ++field) next_number<int64_t>(at);
  row.process.started = next_number<uint64_t>(at);
  next_number<uint64_t>(at);  // virtual memory
  static const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  row.process.resident_bytes = next_number<uint64_t>(at) * page;
  return state != 'Z' && state != 'X';
}

std::vector<Row> all_processes() {
  std::vector<Row> rows;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    Row row;
    const std::string_view name(entry->d_name);
    const auto [end, error] =
        std::from_chars(name.data(), name.data() + name.size(), row.process.pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (read_row(content_of(fmt::format("/proc/{}/stat", name).c_str()), row)) rows.push_back(row);
  }
  return rows;
}

std::vector<TreeProcess> tree_among(const std::vector<Row>& rows, const std::set<pid_t>& roots,
                                    pid_t session) {
  std::unordered_multimap<pid_t, const Row*> children;
  std::vector<const Row*> found;
  std::set<pid_t> known;
  const auto add = [&](const Row& row) {
    if (known.insert(row.process.pid).second) found.push_back(&row);
  };
  for (const Row& row : rows) {
    children.emplace(row.parent, &row);
    if (roots.contains(row.process.pid) || row.session == session) add(row);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]->process.pid);
    for (auto child = begin; child != end; ++child) add(*child->second);
  }
  std::vector<TreeProcess> tree;
  for (const Row* row : found) tree.push_back(row->process);
  return tree;
}

/// Pages that several processes share are divided among them. 0 where the system does not say.
uint64_t proportional_bytes(pid_t pid) {
  const std::string text = content_of(fmt::format("/proc/{}/smaps_rollup", pid).c_str());
  const std::size_t at = text.find("\nPss:");
  if (at == std::string::npos) return 0;
  return std::strtoull(text.c_str() + at + 5, nullptr, 10) * 1024;
}

}  // namespace

std::vector<TreeProcess> tree_of(pid_t root) { return tree_among(all_processes(), {root}, root); }

uint64_t memory_of(const std::vector<TreeProcess>& tree) {
  uint64_t bytes = 0;
  for (const TreeProcess& each : tree) {
    const uint64_t proportional = tree.size() > 1 ? proportional_bytes(each.pid) : 0;
    bytes += proportional > 0 ? proportional : each.resident_bytes;
  }
  return bytes;
}

void kill_descendants(pid_t root, const std::vector<TreeProcess>& known) {
  using namespace std::chrono_literals;
  const auto patience = std::chrono::steady_clock::now() + 1s;
  ::kill(root, SIGSTOP);  // it starts no others
  do {
    const std::vector<Row> rows = all_processes();
    std::set<pid_t> roots{root};
    for (const TreeProcess& each : known) {
      const auto same = [&each](const Row& row) {
        return row.process.pid == each.pid && row.process.started == each.started;
      };
      if (std::ranges::any_of(rows, same)) roots.insert(each.pid);
    }
    std::vector<TreeProcess> rest = tree_among(rows, roots, root);
    std::erase_if(rest, [root](const TreeProcess& each) { return each.pid == root; });
    if (rest.empty()) return;
    for (const TreeProcess& each : rest) ::kill(each.pid, SIGKILL);
    std::this_thread::sleep_for(2ms);
  } while (std::chrono::steady_clock::now() < patience);
}

}  // namespace slime::plugin
