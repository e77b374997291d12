#include "core/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/descriptor.h"
#include "core/word_pointers.h"

namespace slime {
namespace {

using How = ChildEnd::How;

/// 0, or the errno of the failure.
int spawn_child(const ChildPlan& plan, int out, pid_t& child) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  const std::string log = plan.error_log.string();
  if (plan.reads == ChildPlan::Stream::kErrors) {
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
  } else {
    ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (!log.empty())
      ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                         O_WRONLY | O_CREAT | O_APPEND, 0600);
  }
  const std::vector<char*> words = word_pointers(plan.words);
  const std::vector<char*> variables =
      plan.environment ? word_pointers(*plan.environment) : std::vector<char*>{};
  char* const* environment = plan.environment ? variables.data() : environ;
  const int error = (plan.is_on_path ? ::posix_spawnp : ::posix_spawn)(
      &child, words[0], &actions, nullptr, words.data(), environment);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// What is read of a child, whole or by lines.
class ChildText {
 public:
  explicit ChildText(const ChildPlan& plan) : plan_(plan) {}

  /// false: it is more than the plan allows.
  bool add(std::string_view piece) {
    if (plan_.drops_the_rest && !plan_.on_line)
      piece = piece.substr(0, plan_.most_bytes - text_.size());
    text_.append(piece);
    if (plan_.on_line) pass_lines();
    return text_.size() <= plan_.most_bytes;
  }
  std::string take() { return plan_.on_line ? std::string() : std::move(text_); }

 private:
  void pass_lines() {
    std::size_t begin = 0;
    for (std::size_t end; (end = text_.find('\n', begin)) != text_.npos; begin = end + 1)
      plan_.on_line(text_.substr(begin, end - begin));
    text_.erase(0, begin);
  }

  const ChildPlan& plan_;
  std::string text_;
};

/// Reads until the child has closed its end; otherwise why no longer.
std::optional<How> read_child(const ChildPlan& plan, int end, ChildText& text) {
  using std::chrono::milliseconds, std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  for (std::array<char, 4096> piece{};;) {
    int wait = -1;
    if (plan.patience) {
      const auto spent = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
      wait = static_cast<int>(std::clamp<int64_t>((*plan.patience - spent).count(), 0, INT_MAX));
    }
    pollfd look{.fd = end, .events = POLLIN, .revents = 0};
    const int ready = wait == 0 ? 0 : ::poll(&look, 1, wait);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return How::kTimedOut;
    const ssize_t got = ::read(end, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    if (!text.add({piece.data(), static_cast<std::size_t>(got)})) return How::kPrintedTooMuch;
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// Killed and waited for where its end is not waited for: a callback threw.
class ChildGuard {
 public:
  explicit ChildGuard(pid_t child) : child_(child) {}
  ~ChildGuard() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    wait_for(child_);
  }
  ChildGuard(const ChildGuard&) = delete;
  ChildGuard& operator=(const ChildGuard&) = delete;
  void kill() const { ::kill(child_, SIGKILL); }
  int wait() { return wait_for(std::exchange(child_, -1)); }

 private:
  pid_t child_;
};

}  // namespace

ChildEnd run_child(const ChildPlan& plan) {
  Pipe out;
  try {
    out = make_pipe("a pipe to a child");
  } catch (const std::system_error& error) {
    return {.how = How::kNotStarted, .number = error.code().value()};
  }
  pid_t process = -1;
  const int error = spawn_child(plan, out.write.get(), process);
  out.write.reset();
  if (error != 0) return {.how = How::kNotStarted, .number = error};
  ChildGuard child(process);
  ChildText text(plan);
  const std::optional<How> problem = read_child(plan, out.read.get(), text);
  out.read.reset();
  if (problem) child.kill();
  const int status = child.wait();
  if (problem) return {.how = *problem, .text = text.take()};
  const bool is_signalled = WIFSIGNALED(status);
  return {.how = is_signalled ? How::kSignalled : How::kExited,
          .number = is_signalled ? WTERMSIG(status) : WEXITSTATUS(status),
          .text = text.take()};
}

}  // namespace slime
