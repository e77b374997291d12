#include "plugin/host_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/log_rotation.h"
#include "core/word_pointers.h"

extern char** environ;

namespace slime::plugin {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int kFrames = 3;  // descriptor of the host's end
constexpr int kBoard = 4;   // of the board of calls
constexpr int kAboveThose = 16;
constexpr uint64_t kFrameLimit = uint64_t{1} << 30;  // bytes of one frame of a host
constexpr uint64_t kBytesOfAMinute = uint64_t{8} << 20;
constexpr std::size_t kTail = 4096;  // bytes that are shown when it dies
constexpr std::chrono::milliseconds kEndingPatience{500};
constexpr std::chrono::milliseconds kLookInterval{200};
constexpr int kLookShare = 50;  // looking takes a fiftieth of a core at most
constexpr std::size_t kMostProcesses = 256;
constexpr int kMostReads = 16;  // of its output at once: other work goes on between them

/// Ours and theirs.
std::array<int, 2> socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw ConfigError(fmt::format("no socket for a plug-in host: {}", std::strerror(errno)));
  return ends;
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

void HostLog::add(std::string_view text) {
  const auto now = Steady::now();
  rotate_log(file_);
  std::ofstream file(file_, std::ios::app | std::ios::binary);
  if (now - minute_ > std::chrono::minutes(1)) {
    if (left_out_ > 0) file << fmt::format("\n[slime: {} bytes are left out here]\n", left_out_);
    minute_ = now;
    written_ = left_out_ = 0;
  }
  const std::string_view kept = text.substr(0, kBytesOfAMinute - written_);
  if (kept.size() < text.size() && left_out_ == 0)
    file << "\n[slime: a minute has room for 8 MiB; what follows in it is left out]\n";
  file << kept;
  written_ += kept.size();
  left_out_ += text.size() - kept.size();
  last_ += text.substr(text.size() - std::min(text.size(), kTail));
  if (last_.size() > kTail) last_.erase(0, last_.size() - kTail);
}

std::string HostLog::tail() const {
  std::string_view text = last_;
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::size_t begin = text.size();
  for (int lines = 0; lines < 10 && begin != std::string_view::npos && begin > 0; ++lines)
    begin = text.rfind('\n', begin - 1);
  return std::string(begin == std::string_view::npos ? text
                                                     : text.substr(begin + (begin > 0 ? 1 : 0)));
}

std::filesystem::path package_folder() {
  std::error_code ignored;
  auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int level = 0; level < 4 && folder.has_relative_path(); ++level) {
    if (std::filesystem::exists(folder / "python" / "slime" / "host" / "__main__.py", ignored))
      return folder / "python";
    folder = folder.parent_path();
  }
  return {};
}

std::vector<std::string> python_environment() {
  std::vector<std::string> all;
  std::string path = package_folder().string();
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view entry(*each);
    if (entry.starts_with("PYTHONPATH=") && !path.empty()) {
      path += ":" + std::string(entry.substr(entry.find('=') + 1));
    } else {
      all.emplace_back(entry);
    }
  }
  if (!path.empty()) all.push_back("PYTHONPATH=" + path);
  return all;
}

HostProcess::HostProcess(const std::string& python, HostLog& log, int board)
    : channel_(
          [this] {
            const std::array<int, 2> ends = socket_pair();
            theirs_ = ends[1];
            return ends[0];
          }(),
          kFrameLimit),
      log_(log) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    ::close(theirs_);
    throw ConfigError(fmt::format("no pipe for a plug-in host: {}", std::strerror(error)));
  }
  ::fcntl(pipe[0], F_SETFL, O_NONBLOCK);
  output_ = pipe[0];
  // A number that the actions below do not write to before they read it.
  const int board_above = board < 0 ? -1 : ::fcntl(board, F_DUPFD_CLOEXEC, kAboveThose);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs_, kFrames);
  if (board_above >= 0) posix_spawn_file_actions_adddup2(&actions, board_above, kBoard);
  posix_spawn_file_actions_addclosefrom_np(&actions, board_above >= 0 ? kBoard + 1 : kFrames + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Ctrl-C is for the program; what users' code starts is found by the group and killed with it.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::vector<std::string> words{python, "-u", "-m", "slime.host"};
  std::vector<std::string> variables = python_environment();
  const int error = ::posix_spawnp(&process_, python.c_str(), &actions, &attributes,
                                   word_pointers(words).data(), word_pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(theirs_);
  ::close(pipe[1]);
  if (board_above >= 0) ::close(board_above);
  if (error == 0) return;
  process_ = -1;
  ::close(output_);
  throw ConfigError(
      fmt::format("--plugin-python {}: cannot be started: {}", python, std::strerror(error)));
}

HostProcess::~HostProcess() {
  if (process_ > 0) {
    kill_all();
    ::waitpid(process_, nullptr, 0);
  }
  if (output_ >= 0) ::close(output_);
}

void HostProcess::read_output() {
  std::array<char, 65536> bytes;
  for (int i = 0; i < kMostReads && output_ >= 0; ++i) {
    const ssize_t count = ::read(output_, bytes.data(), bytes.size());
    if (count > 0) {
      log_.add({bytes.data(), static_cast<std::size_t>(count)});
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      return;
    } else {
      ::close(output_);
      output_ = -1;
    }
  }
}

void HostProcess::kill_all() {
  kill_descendants(process_, tree_);
  ::kill(-process_, SIGKILL);
}

std::string HostProcess::over_limit(uint64_t memory_bytes) {
  const auto begin = Steady::now();
  if (begin < look_at_) return {};
  tree_ = tree_of(process_);
  uint64_t bytes = 0;
  for (const TreeProcess& each : tree_) bytes += each.resident_bytes;
  const bool may_be_over = memory_bytes > 0 && bytes > memory_bytes;
  if (may_be_over) bytes = memory_of(tree_);
  const auto end = Steady::now();
  look_at_ = end + std::max<Steady::duration>(kLookInterval, kLookShare * (end - begin));
  if (tree_.size() > kMostProcesses) {
    return fmt::format("the plug-in host had {} processes with those that it started, more than {}",
                       tree_.size(), kMostProcesses);
  }
  if (!may_be_over || bytes <= memory_bytes) return {};
  constexpr double kGigabyte = 1 << 30;
  return fmt::format(
      "the plug-in host held {:.2f} GiB with all that it started, more than --plugin-memory-gb "
      "{:g}",
      static_cast<double>(bytes) / kGigabyte, static_cast<double>(memory_bytes) / kGigabyte);
}

std::string HostProcess::end(bool waits) {
  const auto patience = Steady::now() + (waits ? kEndingPatience : std::chrono::milliseconds(0));
  siginfo_t ended{};
  const auto has_ended = [&] {  // its number stays its own until it is waited for below
    ::waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT);
    return ended.si_pid != 0;
  };
  while (!has_ended() && Steady::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const bool by_itself = ended.si_pid != 0;
  kill_all();
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  read_output();
  return by_itself ? ending_of(status) : "closed its connection and was killed";
}

}  // namespace slime::plugin
