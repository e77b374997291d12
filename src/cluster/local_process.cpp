#include "cluster/local_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <string_view>

#include "cluster/visible_devices.h"
#include "core/error.h"
#include "core/word_pointers.h"

extern char** environ;

namespace slime::cluster {
namespace {

constexpr int kControlDescriptor = 3;
constexpr int kDataDescriptor = 4;
constexpr int kFirstFreeDescriptor = 10;  // no file action writes to it or those above
constexpr std::size_t kShownLines = 10;

std::string_view name_of(std::string_view setting) { return setting.substr(0, setting.find('=')); }

/// This process's environment with `settings` in the place of variables of the same names. Views into
/// both.
std::vector<char*> environment_with(std::vector<std::string>& settings) {
  std::vector<char*> variables;
  for (std::string& setting : settings) variables.push_back(setting.data());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool is_replaced = std::ranges::any_of(settings, [&](const std::string& setting) {
      return name_of(setting) == name_of(*variable);
    });
    if (!is_replaced) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  return variables;
}

std::string status_text(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("was killed by signal {} ({})", number, ::strsignal(number));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

/// Indented.
std::string last_lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back("  " + line);
    if (lines.size() > kShownLines) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

class LocalProcess final : public WorkerProcess {
 public:
  LocalProcess(pid_t process, std::filesystem::path log)
      : process_(process), log_(std::move(log)) {}
  ~LocalProcess() override { kill(); }
  LocalProcess(const LocalProcess&) = delete;
  LocalProcess& operator=(const LocalProcess&) = delete;

  std::string name() const override { return fmt::format("process {}", process_); }

  std::optional<std::string> ending() override {
    if (is_reaped_) return "was killed";
    // Left as it is for kill(): the number stays the process's until it is reaped.
    siginfo_t info{};
    const int done =
        ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (done != 0 || info.si_pid == 0) return std::nullopt;
    return status_text(info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8
                                                  : info.si_status & 0x7f);
  }

  void kill() override {
    if (is_reaped_) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    is_reaped_ = true;
  }

  std::string last_lines() override {
    const std::string lines = last_lines_of(log_);
    return lines.empty() ? "" : fmt::format("the last lines of {}:\n{}", log_.string(), lines);
  }

 private:
  pid_t process_;
  std::filesystem::path log_;
  bool is_reaped_ = false;
};

}  // namespace

namespace {

/// Of what is started: its group, or its session.
enum class Belongs { kToGroupOfItsOwn, kToSessionOfItsOwn };

pid_t spawn(const WorkerOrder& order, const WorkerSockets& sockets,
            const std::optional<std::string>& device, Belongs belongs) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, order.log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  // Moved out of the way first: one may have the number that the other is to get.
  const auto give = [&actions](int descriptor, int as) {
    if (descriptor < 0) return -1;
    const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kFirstFreeDescriptor);
    posix_spawn_file_actions_adddup2(&actions, copy, as);
    return copy;
  };
  const int control = give(sockets.control, kControlDescriptor);
  const int data = give(sockets.data, kDataDescriptor);
  // A group of its own: Ctrl-C is for the controller, which then stops its workers.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const bool is_group = belongs == Belongs::kToGroupOfItsOwn;
  posix_spawnattr_setflags(&attributes, is_group ? POSIX_SPAWN_SETPGROUP : POSIX_SPAWN_SETSID);
  if (is_group) posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<std::string> command = order.command;
  if (command.at(0).empty()) command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::vector<char*> words = word_pointers(command);
  std::vector<std::string> settings = to_environment(order.identity);
  if (device) settings.push_back(fmt::format("{}={}", kVisibleDevices, *device));
  // It would win over the one above.
  if (device && has_visible_hip_devices())
    settings.push_back(fmt::format("{}={}", kVisibleHipDevices, *device));
  const std::vector<char*> variables = environment_with(settings);
  pid_t process = -1;
  const int error =
      ::posix_spawn(&process, words[0], &actions, &attributes, words.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  for (const int given : {control, data})
    if (given >= 0) ::close(given);
  if (error != 0) {
    throw ConfigError(
        fmt::format("{}: cannot start {}: {}", order.name, words[0], std::strerror(error)));
  }
  return process;
}

}  // namespace

std::unique_ptr<WorkerProcess> start_process(const WorkerOrder& order, const WorkerSockets& sockets,
                                             const std::optional<std::string>& device) {
  return std::make_unique<LocalProcess>(spawn(order, sockets, device, Belongs::kToGroupOfItsOwn),
                                        order.log);
}

pid_t start_detached(const WorkerOrder& order, const std::optional<std::string>& device) {
  std::filesystem::create_directories(order.log.parent_path());
  return spawn(order, {}, device, Belongs::kToSessionOfItsOwn);
}

StartedWorker LocalLauncher::start(const WorkerOrder& order) {
  check(order.place.node == 0, "a launcher of one host has one node");
  std::filesystem::create_directories(order.log.parent_path());
  std::array<int, 2> control{}, data{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control.data()) != 0)
    throw ConfigError(fmt::format("no socket for {}: {}", order.name, std::strerror(errno)));
  if (order.has_data && ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, data.data()) != 0) {
    const std::string why = std::strerror(errno);
    for (const int end : control) ::close(end);
    throw ConfigError(fmt::format("no socket for {}: {}", order.name, why));
  }
  std::optional<std::string> device;
  if (order.place.device >= 0)
    device = visible_devices(order.place.device, order.place.num_devices);
  StartedWorker started{.process = nullptr, .control = control[0], .data = data[0]};
  std::string failure;
  try {
    started.process = start_process(order, {.control = control[1], .data = data[1]}, device);
  } catch (const ConfigError& error) {
    failure = error.what();
  }
  ::close(control[1]);
  if (data[1] >= 0) ::close(data[1]);
  if (failure.empty()) return started;
  ::close(started.control);
  if (started.data >= 0) ::close(started.data);
  throw ConfigError(failure);
}

std::string LocalLauncher::address(int /*node*/) const { return "127.0.0.1"; }

}  // namespace slime::cluster
