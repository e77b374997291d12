#include "acceptance/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace slime::acceptance {
namespace {

/// A line of figures has some hundred bytes.
constexpr std::size_t kLongestLine = std::size_t{64} << 10;

/// Both ends of a pipe, closed in other children.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw ConfigError(fmt::format("no pipe to a child: {}", std::strerror(errno)));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_write() { close_end(1); }

 private:
  void close_end(std::size_t which) {
    if (ends_[which] >= 0) ::close(ends_[which]);
    ends_[which] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

pid_t spawn(const ChildPlan& plan, int out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  const std::string log = plan.log.string();
  if (!log.empty())
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::vector<char*> words;
  for (const std::string& word : plan.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw ConfigError(fmt::format("no child process: {}", std::strerror(error)));
  return child;
}

void pass_lines(std::string& text, const std::function<void(const std::string&)>& on_line) {
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.erase(0, end + 1))
    if (on_line) on_line(text.substr(0, end));
}

}  // namespace

std::string run_child(const ChildPlan& plan) {
  Pipe out;
  const pid_t child = spawn(plan, out.write_end());
  out.close_write();
  const auto deadline = std::chrono::steady_clock::now() + plan.patience;
  std::string text, problem;
  for (std::array<char, 4096> piece{};;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd look{.fd = out.read_end(), .events = POLLIN, .revents = 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&look, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      problem = fmt::format("took more than {} s", plan.patience.count());
      break;
    }
    const ssize_t got = ::read(out.read_end(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
    pass_lines(text, plan.on_line);
    if (text.size() > kLongestLine) {
      problem = "printed a line that is no figure";
      break;
    }
  }
  if (!problem.empty()) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!problem.empty()) return problem;
  if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return fmt::format("exit code {}", WEXITSTATUS(status));
  return {};
}

}  // namespace slime::acceptance
