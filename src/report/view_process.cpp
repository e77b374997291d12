#include "report/view_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/own_command.h"
#include "core/shell_word.h"
#include "core/word_pointers.h"

extern char** environ;

namespace slime::report {
namespace {

constexpr std::size_t kLongestLine = 4096;
constexpr int kEndMilliseconds = 2000;

std::string later(const std::filesystem::path& run_dir) {
  return fmt::format("the run goes on; `{}` shows it",
                     own_command("view " + shell_word(run_dir.string())));
}

}  // namespace

ViewProcess::ViewProcess(const std::filesystem::path& run_dir, int64_t port, Tell tell)
    : tell_(std::move(tell)) {
  try {
    start(run_dir, port);
  } catch (const std::exception& error) {
    say(fmt::format("--view: {}; {}", error.what(), later(run_dir)));
    return;
  }
  watch_ = std::thread([this, run_dir] {
    watch();
    int status = 0;
    if (::waitpid(child_, &status, 0) == child_ && WIFEXITED(status) && WEXITSTATUS(status) == 0)
      return;
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("ended by signal {}", WTERMSIG(status))
                                : fmt::format("ended with status {}", WEXITSTATUS(status));
    say(fmt::format("--view: the page's process {}; {}", how, later(run_dir)));
  });
}

void ViewProcess::start(const std::filesystem::path& run_dir, int64_t port) {
  std::array<int, 2> in{-1, -1}, out{-1, -1};
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0 || ::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("no pipe: {}", std::strerror(errno)));
  to_child_ = in[1];
  from_child_ = out[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  // What it has to say comes by the pipe: the run's display owns the terminal.
  posix_spawn_file_actions_adddup2(&actions, out[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // Ctrl-C is the run's
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<std::string> texts{"slime", "view", run_dir.string(), "--of-run"};
  if (port != 0) texts.insert(texts.end(), {"--port", std::to_string(port)});
  const std::vector<char*> words = word_pointers(texts);
  const int error =
      ::posix_spawn(&child_, "/proc/self/exe", &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(in[0]);
  ::close(out[1]);
  if (error == 0) return;
  child_ = -1;
  throw std::runtime_error(fmt::format("cannot start its process: {}", std::strerror(error)));
}

/// Passes the process's lines on, until it closes its output or this object ends.
void ViewProcess::watch() {
  std::string line;
  std::array<pollfd, 2> waiting{pollfd{.fd = from_child_, .events = POLLIN, .revents = 0},
                                pollfd{.fd = stop_, .events = POLLIN, .revents = 0}};
  for (;;) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return;
    if (waiting[1].revents != 0) return;
    if (waiting[0].revents == 0) continue;
    std::array<char, 512> bytes{};
    const ssize_t count = ::read(from_child_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    for (const char byte : std::string_view(bytes.data(), static_cast<std::size_t>(count))) {
      if (byte != '\n') {
        if (line.size() < kLongestLine) line += byte;
        continue;
      }
      if (!line.empty()) say(line);
      line.clear();
    }
  }
}

void ViewProcess::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (tell_) tell_(line);
}

void ViewProcess::tell_by(Tell tell) {
  const std::lock_guard lock(mutex_);
  tell_ = std::move(tell);
}

ViewProcess::~ViewProcess() {
  tell_by(nullptr);
  if (to_child_ >= 0) ::close(to_child_);  // the process ends by it
  if (watch_.joinable()) {
    const std::uint64_t one = 1;
    // The output closes when the process ends; one that does not is ended.
    pollfd output{.fd = from_child_, .events = 0, .revents = 0};
    if (::poll(&output, 1, kEndMilliseconds) <= 0) ::kill(child_, SIGKILL);
    if (::write(stop_, &one, sizeof one) < 0) ::kill(child_, SIGKILL);
    watch_.join();
  }
  if (from_child_ >= 0) ::close(from_child_);
  if (stop_ >= 0) ::close(stop_);
}

}  // namespace slime::report
