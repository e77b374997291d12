#include "sandbox/sandbox.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/error.h"
#include "sandbox/usage.h"
#include "sandbox/write_quietly.h"

namespace slime::sandbox {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kShortestLook{10};  // between looks at memory and files
/// What nobody saw for so long may have been anything: such code has no verdict of success.
constexpr std::chrono::milliseconds kLatestLook{5'000};
/// A look takes at most this part of the time, until a limit is close; but the next one is never far away.
constexpr int kLookShare = 10;
constexpr std::chrono::milliseconds kLongestPause{1'000};
constexpr std::size_t kReadBytes = std::size_t{64} << 10;

void check_range(int64_t value, int64_t low, int64_t high, const char* name) {
  if (value < low || value > high)
    throw ConfigError(fmt::format("{} {}: should be from {} to {}", name, value, low, high));
}

const Limits& checked(const Limits& limits) {
  using Ceilings = LimitCeilings;
  check_range(limits.time.count(), 1, Ceilings::kTime.count(), "milliseconds of a command");
  check_range(limits.memory_bytes, int64_t{16} << 20, Ceilings::kBytes, "bytes of memory");
  check_range(limits.processes, 1, Ceilings::kProcesses, "processes");
  check_range(limits.output_bytes, 1, Ceilings::kOutputBytes, "bytes of output");
  check_range(limits.disk_bytes, int64_t{1} << 20, Ceilings::kBytes, "bytes of files");
  check_range(limits.files, 16, Ceilings::kFiles, "files");
  check_range(limits.open_files, 16, Ceilings::kOpenFiles, "open files");
  return limits;
}

/// One output of a command, as far as it is kept.
class Output {
 public:
  Output(Descriptor end, int64_t limit_bytes) : end_(std::move(end)), limit_(limit_bytes) {}

  int descriptor() const { return end_.get(); }  // -1 once it has ended
  bool is_over_limit() const { return is_over_limit_; }
  /// What is there now, without waiting, and no more than a little above the limit.
  void read() {
    std::array<char, kReadBytes> bytes{};
    while (end_.get() >= 0 && !is_over_limit_) {
      const ssize_t count = ::read(end_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count <= 0) {
        end_.reset();
        return;
      }
      const std::size_t room = static_cast<std::size_t>(limit_) - text_.size();
      text_.append(bytes.data(), std::min(room, static_cast<std::size_t>(count)));
      is_over_limit_ = static_cast<std::size_t>(count) > room;
    }
  }
  std::string text() && { return std::move(text_); }

 private:
  Descriptor end_;
  int64_t limit_;
  std::string text_;
  bool is_over_limit_ = false;
};

/// The input of a command, as far as it takes it.
class Input {
 public:
  Input(Descriptor end, std::string_view rest) : end_(std::move(end)), rest_(rest) { write(); }

  int descriptor() const { return end_.get(); }
  void write() {
    while (!rest_.empty()) {
      const ssize_t count = write_quietly(end_.get(), rest_);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) break;  // it reads no more
      rest_.remove_prefix(static_cast<std::size_t>(count));
    }
    end_.reset();
  }

 private:
  Descriptor end_;
  std::string_view rest_;
};

std::string reason_of(Ending limit, const Limits& limits) {
  switch (limit) {
    case Ending::kTime:
      return fmt::format("was ended after {:g} s", static_cast<double>(limits.time.count()) / 1000);
    case Ending::kOutput:
      return fmt::format("was ended: it wrote more than {} bytes", limits.output_bytes);
    case Ending::kMemory:
      return fmt::format("was ended: more than {} bytes of memory", limits.memory_bytes);
    default:
      return fmt::format("was ended: more than {} files", limits.files);
  }
}

/// The doorkeeper's word; waits for it. Nothing when it was killed.
std::optional<DoorkeeperWord> read_word(int descriptor) {
  DoorkeeperWord word;
  for (;;) {
    const ssize_t count = ::read(descriptor, &word, sizeof word);
    if (count == static_cast<ssize_t>(sizeof word)) return word;
    if (count >= 0 || (errno != EINTR && errno != EAGAIN)) return std::nullopt;
    pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, -1);
  }
}

Outcome ending_of(const std::optional<DoorkeeperWord>& word, const Command& command) {
  if (!word) return {.ending = Ending::kEnded, .reason = "who watched the command was killed"};
  Outcome outcome;
  outcome.cpu_seconds = static_cast<double>(word->cpu_microseconds) / 1e6;
  if (word->failed_step != 0) {
    outcome.ending = Ending::kNotStarted;
    outcome.code = word->error;
    outcome.reason = fmt::format("could not {} ({}): {}", name_of_step(word->failed_step),
                                 command.words.front(), ::strerror(word->error));
  } else if (WIFSIGNALED(word->wait_status)) {
    outcome.ending = Ending::kSignal;
    outcome.code = WTERMSIG(word->wait_status);
    outcome.reason =
        fmt::format("was ended by signal {} ({})", outcome.code, ::strsignal(outcome.code));
  } else {
    outcome.ending = Ending::kExited;
    outcome.code = WEXITSTATUS(word->wait_status);
    if (outcome.code != 0) outcome.reason = fmt::format("exit code {}", outcome.code);
  }
  return outcome;
}

std::string words_of(const Outcome& outcome) {
  std::string words = outcome.error.empty() ? outcome.reason : outcome.error;
  while (words.ends_with('\n')) words.pop_back();
  return words;
}

}  // namespace

std::string_view name_of(Ending ending) {
  switch (ending) {
    case Ending::kExited:
      return "exited";
    case Ending::kSignal:
      return "signal";
    case Ending::kTime:
      return "time";
    case Ending::kMemory:
      return "memory";
    case Ending::kOutput:
      return "output";
    case Ending::kFiles:
      return "files";
    case Ending::kNotStarted:
      return "not started";
    case Ending::kEnded:
      return "ended";
  }
  throw BugError("an ending without a name");
}

Availability availability(const SandboxConfig& config) {
  try {
    Sandbox sandbox(config);
    const Outcome outcome = sandbox.run({.words = {"true"}});
    return {.problem = outcome.is_success() ? "" : "a command in a sandbox " + outcome.reason,
            .memory_bound = sandbox.memory_bound()};
  } catch (const ConfigError& error) {
    return {.problem = error.what(), .memory_bound = ""};
  }
}

std::optional<std::string> why_unavailable() {
  const std::string problem = availability().problem;
  return problem.empty() ? std::nullopt : std::optional(problem);
}

Sandbox::Sandbox(SandboxConfig config)
    : config_(std::move(config)),
      gpu_(config_.gpu ? std::optional(files_of_gpu(*config_.gpu, config_.gpu_places))
                       : std::nullopt),
      group_(MemoryGroup::make(config_.groups,
                               checked(config_.limits).memory_bytes + config_.limits.disk_bytes)),
      jail_(config_.limits, config_.readable, gpu_) {}

std::vector<std::string> Sandbox::usual_environment() const {
  std::vector<std::string> all{std::string("PATH=") + kSearchPath,
                               "HOME=/work",
                               "TMPDIR=/work/.tmp",
                               "LANG=C.UTF-8",
                               "USER=nobody",
                               "PYTHONDONTWRITEBYTECODE=1",
                               "PYTHONUNBUFFERED=1",
                               "MPLBACKEND=Agg"};
  if (gpu_) all.insert(all.end(), gpu_->environment.begin(), gpu_->environment.end());
  return all;
}

std::string Sandbox::memory_bound() const {
  if (group_) return fmt::format("the control group {}, and looks", group_->folder().string());
  return fmt::format("looks alone (no control group: {})", group_.error().message);
}

void Sandbox::end(const std::string& reason) {
  {
    const std::lock_guard lock(end_mutex_);
    if (!is_over_) end_reason_ = reason;
    is_over_ = true;
  }
  jail_.kill();
}

Outcome Sandbox::over() {
  const std::lock_guard lock(end_mutex_);
  return {.ending = Ending::kEnded, .reason = "the sandbox is over: " + end_reason_};
}

Sandbox::Look Sandbox::look(const Limits& limits) const {
  if (group_ && group_->was_exceeded()) return {.limit_reached = Ending::kMemory};
  if (files_in_use(jail_.work_folder()) > limits.files) return {.limit_reached = Ending::kFiles};
  const int64_t used =
      memory_in_use(jail_.processes_folder(), jail_.sockets(), limits.memory_bytes);
  if (used > limits.memory_bytes) return {.limit_reached = Ending::kMemory};
  return {.limit_reached = {}, .is_close = used > limits.memory_bytes / 2};
}

Outcome Sandbox::run(Command command, const Limits& limits) {
  checked(limits);
  check(!command.words.empty(), "a command has a program");
  if (is_over_) return over();
  if (command.environment.empty()) command.environment = usual_environment();
  const auto start = Steady::now();
  const auto deadline = start + limits.time;
  RunningCommand running =
      start_in(jail_.first_process(), group_ ? group_->entrance() : -1, jail_.person(), command,
               limits, gpu_ ? Device::kGpu : Device::kNone);
  Input input(std::move(running.input), command.input);
  Output output(std::move(running.output), limits.output_bytes);
  Output error(std::move(running.error), limits.output_bytes);

  std::optional<Ending> limit_reached;
  auto next_look = start + kShortestLook;
  bool was_late = false;
  for (bool is_running = true; is_running && !limit_reached;) {
    std::array<pollfd, 4> events{{{.fd = running.word.get(), .events = POLLIN, .revents = 0},
                                  {.fd = output.descriptor(), .events = POLLIN, .revents = 0},
                                  {.fd = error.descriptor(), .events = POLLIN, .revents = 0},
                                  {.fd = input.descriptor(), .events = POLLOUT, .revents = 0}}};
    const auto wait =
        std::chrono::ceil<std::chrono::milliseconds>(std::min(next_look, deadline) - Steady::now());
    ::poll(events.data(), events.size(), std::max(0, static_cast<int>(wait.count())));
    is_running = events[0].revents == 0;
    if (events[3].revents != 0) input.write();
    output.read();
    error.read();
    const auto now = Steady::now();
    if (output.is_over_limit() || error.is_over_limit()) {
      limit_reached = Ending::kOutput;
    } else if (is_running && now >= deadline) {
      limit_reached = Ending::kTime;
    } else if (now >= next_look || !is_running) {
      // Also behind its end: what it has left running still holds what it has.
      const Look seen = look(limits);
      limit_reached = seen.limit_reached;
      was_late = !group_ && !limit_reached && now - next_look > kLatestLook;
      if (was_late) limit_reached = Ending::kMemory;
      const auto took = Steady::now() - now;
      next_look =
          Steady::now() + std::clamp<Steady::duration>((seen.is_close ? 1 : kLookShare) * took,
                                                       kShortestLook, kLongestPause);
    }
  }

  std::string reason;
  if (limit_reached) {
    reason = was_late ? "was ended: its memory could not be looked at for a while"
                      : reason_of(*limit_reached, limits);
    if (*limit_reached == Ending::kMemory || *limit_reached == Ending::kFiles)
      end("a command " + reason);
    running.leash.reset();
  }
  Outcome outcome = ending_of(read_word(running.word.get()), command);
  while (running.doorkeeper >= 0 && ::waitpid(running.doorkeeper, nullptr, 0) < 0 &&
         errno == EINTR) {
  }
  output.read();
  error.read();
  outcome.output = std::move(output).text();
  outcome.error = std::move(error).text();
  outcome.seconds = std::chrono::duration<double>(Steady::now() - start).count();
  if (limit_reached) {
    outcome.ending = *limit_reached;
    outcome.code = 0;
    outcome.reason = reason;
  } else if (outcome.ending != Ending::kExited && is_over_) {
    const Outcome ended = over();
    outcome.ending = ended.ending;
    outcome.reason = ended.reason;
  }
  return outcome;
}

Expected<void> Sandbox::write(const std::string& path, std::string_view bytes) {
  constexpr const char* kScript = "mkdir -p -- \"$(dirname -- \"$1\")\" && exec cat > \"$1\"";
  const Outcome outcome =
      run({.words = {"/bin/sh", "-c", kScript, "sh", path}, .input = std::string(bytes)});
  if (!outcome.is_success()) return failure(fmt::format("{}: {}", path, words_of(outcome)));
  return {};
}

Expected<std::string> Sandbox::read(const std::string& path, int64_t limit_bytes) {
  Limits limits = config_.limits;
  limits.output_bytes = std::max<int64_t>(limit_bytes, 4096);  // there has to be room for an error
  Outcome outcome = run({.words = {"/bin/cat", "--", path}}, limits);
  if (outcome.ending == Ending::kOutput ||
      outcome.output.size() > static_cast<std::size_t>(limit_bytes))
    return failure(fmt::format("{}: is larger than {} bytes", path, limit_bytes));
  if (!outcome.is_success()) return failure(fmt::format("{}: {}", path, words_of(outcome)));
  return std::move(outcome.output);
}

}  // namespace slime::sandbox
