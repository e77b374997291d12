#include "cluster/local_workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "cluster/visible_devices.h"
#include "core/error.h"

extern char** environ;

namespace slime::cluster {
namespace {

constexpr int kControlDescriptor = 3;
constexpr int kDataDescriptor = 4;
constexpr int kFirstFreeDescriptor = 10;  // no file action writes to it or those above
constexpr int kWatchMilliseconds = 100;
constexpr std::chrono::seconds kAbsence{1};  // looks are a tenth of that apart
constexpr std::size_t kShownLines = 10;
constexpr std::chrono::milliseconds kTaskTimeout{60'000};
constexpr std::chrono::milliseconds kEndingPatience{3'000};

/// The environment of this process, but for the devices that a child sees. Views into `environ` and
/// into `setting`.
std::vector<char*> environment_with(std::string& setting) {
  const std::string name = std::string(kVisibleDevices) + "=";
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!std::string_view(*variable).starts_with(name)) variables.push_back(*variable);
  setting.insert(0, name);
  variables.push_back(setting.data());
  variables.push_back(nullptr);
  return variables;
}

/// The last lines of a file, indented.
std::string last_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back("  " + line);
    if (lines.size() > kShownLines) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

Progress progress_from(std::string_view payload) {
  Progress progress;
  const char* end = payload.data() + payload.size();
  const auto [rest, error] = std::from_chars(payload.data(), end, progress.num_collectives);
  if (error == std::errc{} && rest != end) progress.doing.assign(rest + 1, end);
  return progress;
}

std::string status_text(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("was killed by signal {} ({})", number, ::strsignal(number));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

LocalWorkers::LocalWorkers(LocalWorkersConfig config, const Clock& clock)
    : config_(std::move(config)), clock_(clock), workers_(config_.count) {
  std::filesystem::create_directories(config_.log_folder);
  try {
    for (int i = 0; i < config_.count; ++i) {
      workers_[i].rank = config_.first_rank + i;
      start(workers_[i]);
    }
  } catch (...) {
    kill_all();
    throw;
  }
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

LocalWorkers::~LocalWorkers() {
  watcher_.request_stop();
  {
    const std::lock_guard lock(mutex_);  // it looks before it waits for the owner to notice
  }
  changed_.notify_all();
  watcher_.join();
  for (Worker& worker : workers_) {
    if (worker.process < 0) continue;
    try {
      worker.channel->send(static_cast<uint32_t>(WorkerFrame::kStop), "", config_.stop_limit);
    } catch (const net::FrameError&) {  // it hangs, and is killed below
    }
  }
  const auto begin = clock_.now();
  for (Worker& worker : workers_) {
    while (worker.process >= 0 && clock_.now() - begin < config_.stop_limit) {
      if (::waitpid(static_cast<pid_t>(worker.process), nullptr, WNOHANG) != 0) {
        worker.process = -1;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
  }
  kill_all();
}

void LocalWorkers::start(Worker& worker) {
  worker.log = config_.log_folder / fmt::format("{}_{}.log", config_.noun, worker.rank);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw ConfigError(fmt::format("no socket for a worker: {}", std::strerror(errno)));
  worker.channel = std::make_unique<net::FrameChannel>(ends[0]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, worker.log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kControlDescriptor);
  int data = -1;
  if (!config_.data_sockets.empty()) {
    const int socket = config_.data_sockets.at(worker.rank - config_.first_rank);
    data = ::fcntl(socket, F_DUPFD_CLOEXEC, kFirstFreeDescriptor);
    posix_spawn_file_actions_adddup2(&actions, data, kDataDescriptor);
  }
  // A group of its own: Ctrl-C is for the controller, which then stops its workers.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<char*> words;
  for (std::string& word : config_.command) words.push_back(word.data());
  words.push_back(nullptr);
  std::string device;
  std::vector<char*> variables;
  if (!config_.visible_devices.empty()) {
    device = config_.visible_devices.at(worker.rank - config_.first_rank);
    variables = environment_with(device);
  }
  pid_t process = -1;
  std::vector<std::string> own = to_environment(config_.identity);
  if (variables.empty()) {
    for (char** setting = environ; *setting != nullptr; ++setting) variables.push_back(*setting);
    variables.push_back(nullptr);
  }
  for (std::string& setting : own) variables.insert(variables.begin(), setting.data());
  const int error =
      ::posix_spawn(&process, words[0], &actions, &attributes, words.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  if (data >= 0) ::close(data);
  if (error != 0) {
    throw ConfigError(fmt::format("{} {}: cannot start {}: {}", config_.noun, worker.rank, words[0],
                                  std::strerror(error)));
  }
  worker.process = process;
  worker.heard = clock_.now();
}

void LocalWorkers::watch(const std::stop_token& stop) {
  std::vector<pollfd> sockets;
  for (const Worker& worker : workers_)
    sockets.push_back({.fd = worker.channel->descriptor(), .events = POLLIN, .revents = 0});
  Clock::TimePoint looked = clock_.now();
  while (!stop.stop_requested() && !has_failed_) {
    ::poll(sockets.data(), sockets.size(), kWatchMilliseconds);
    const auto now = clock_.now();
    // Time in which this process itself was stopped or starved is nobody's silence.
    const auto own_absence = now - looked;
    looked = now;
    for (Worker& worker : workers_) {
      std::string wrong = take_frames(worker);
      {
        const std::lock_guard lock(mutex_);
        if (own_absence > kAbsence) worker.heard += own_absence;
      }
      if (wrong.empty()) wrong = judge(worker);
      if (wrong.empty()) continue;
      fail(wrong, worker.has_wrong_configuration);
      break;
    }
  }
  if (!has_failed_) return;
  std::unique_lock lock(mutex_);
  const bool is_noticed = changed_.wait_for(lock, config_.notice_limit,
                                            [&] { return is_noticed_ || stop.stop_requested(); });
  if (is_noticed || !config_.last_resort) return;
  const std::string message = failure_;
  lock.unlock();
  config_.last_resort(message);
}

std::string LocalWorkers::take_frames(Worker& worker) {
  const bool is_open = worker.channel->read_available();
  try {
    while (auto frame = worker.channel->next()) {
      const std::lock_guard lock(mutex_);
      std::string wrong = take_frame(worker, *std::move(frame));
      if (!wrong.empty()) return wrong;
    }
  } catch (const net::FrameError& error) {
    return describe(worker, error.what());
  }
  return is_open ? "" : describe(worker, ending(worker));
}

std::string LocalWorkers::take_frame(Worker& worker, net::Frame frame) {
  const auto type = static_cast<WorkerFrame>(frame.type);
  if (!worker.has_greeted && !config_.identity.token.empty()) {
    const std::string why = type == WorkerFrame::kGreeting
                                ? why_refused(config_.identity, frame.payload)
                                : "it does not begin with the run's token";
    if (!why.empty()) return describe(worker, "is refused: " + why);
  }
  worker.has_greeted = true;
  worker.heard = clock_.now();
  worker.is_running = true;
  switch (type) {
    case WorkerFrame::kGreeting:
      return "";
    case WorkerFrame::kHeartbeat:
      worker.progress = progress_from(frame.payload);
      return "";
    case WorkerFrame::kAnswer:
      worker.answers.push_back(std::move(frame.payload));
      changed_.notify_all();
      return "";
    case WorkerFrame::kFailure:
      if (frame.payload.starts_with(static_cast<char>(FailureCause::kPeers))) {
        worker.complaint = frame.payload.substr(1);
        worker.complained = clock_.now();
        return "";
      }
      worker.has_wrong_configuration =
          frame.payload.starts_with(static_cast<char>(FailureCause::kConfiguration));
      if (worker.has_wrong_configuration) return frame.payload.substr(1);
      return describe(worker, "failed: " + frame.payload.substr(1));
    default:
      return describe(worker, fmt::format("sent a frame of type {}", frame.type));
  }
}

std::string LocalWorkers::judge(Worker& worker) {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.now();
  // Whoever is to blame would have been noticed by now.
  if (!worker.complaint.empty() && now - worker.complained > config_.blame_limit)
    return describe(worker, "cannot reach the other ranks: " + worker.complaint);
  const auto silence = std::chrono::duration<double>(now - worker.heard);
  const auto limit = worker.is_running ? config_.silence_limit
                                       : std::max(config_.silence_limit, config_.start_limit);
  if (silence <= limit) return "";
  if (!worker.is_running) {
    return describe(worker,
                    fmt::format("has not begun within {:.1f} s and was killed", silence.count()));
  }
  return describe(
      worker, fmt::format("has said nothing for {:.1f} s (--worker-timeout-seconds {:g}) and was "
                          "killed; the last thing it did: {}",
                          silence.count(), std::chrono::duration<double>(limit).count(),
                          worker.progress.doing));
}

std::string LocalWorkers::describe(const Worker& worker, const std::string& what) const {
  std::string text =
      fmt::format("{} {} (process {}) {}", config_.noun, worker.rank, worker.process, what);
  const std::string lines = last_lines(worker.log);
  if (!lines.empty())
    text += fmt::format("\nthe last lines of {}:\n{}", worker.log.string(), lines);
  return text;
}

std::string LocalWorkers::ending(Worker& worker) {
  const auto begin = clock_.now();
  int status = 0;
  while (clock_.now() - begin < kEndingPatience) {
    // Left as it is for kill_all: the number stays the process's until it is reaped.
    siginfo_t info{};
    const int done =
        ::waitid(P_PID, static_cast<id_t>(worker.process), &info, WEXITED | WNOHANG | WNOWAIT);
    if (done == 0 && info.si_pid != 0) {
      status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
      return status_text(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return "closed its connection and was killed";
}

void LocalWorkers::fail(const std::string& message, bool is_configuration) {
  const std::lock_guard lock(mutex_);
  kill_all();
  failure_ = message;
  is_configuration_ = is_configuration;
  has_failed_ = true;
  changed_.notify_all();
}

void LocalWorkers::kill_all() {
  for (Worker& worker : workers_) {
    if (worker.process < 0) continue;
    ::kill(static_cast<pid_t>(worker.process), SIGKILL);
    ::waitpid(static_cast<pid_t>(worker.process), nullptr, 0);
    worker.process = -1;
  }
}

LocalWorkers::Worker& LocalWorkers::of_rank(int rank) {
  return workers_.at(static_cast<std::size_t>(rank - config_.first_rank));
}

void LocalWorkers::check_alive() {
  if (!has_failed_) return;
  const std::lock_guard lock(mutex_);
  is_noticed_ = true;
  changed_.notify_all();
  if (is_configuration_) throw ConfigError(failure_);
  throw WorkerFailure(failure_);
}

void LocalWorkers::send_task(int rank, std::string_view payload) {
  check_alive();
  try {
    if (of_rank(rank).channel->send(static_cast<uint32_t>(WorkerFrame::kTask), payload,
                                    kTaskTimeout))
      return;
  } catch (const net::FrameError& error) {
    blame(fmt::format("{} {} does not take its task: {}", config_.noun, rank, error.what()), 0);
  }
  blame(fmt::format("{} {} is gone", config_.noun, rank), 0);
}

std::string LocalWorkers::answer(int rank, std::chrono::milliseconds timeout) {
  Worker& worker = of_rank(rank);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return has_failed_ || !worker.answers.empty(); });
  if (worker.answers.empty()) {
    lock.unlock();
    blame(fmt::format("{} {} did not answer within {:g} s", config_.noun, rank,
                      std::chrono::duration<double>(timeout).count()),
          0);
  }
  std::string answer = std::move(worker.answers.front());
  worker.answers.pop_front();
  return answer;
}

void LocalWorkers::blame(const std::string& what, int64_t num_collectives) {
  std::unique_lock lock(mutex_);
  // What killed the connection is known a moment later.
  changed_.wait_for(lock, config_.blame_limit, [&] { return has_failed_.load(); });
  if (has_failed_) {
    lock.unlock();
    check_alive();
  }
  std::string text = what;
  for (const Worker& worker : workers_) {
    text += fmt::format("\n{} {} (process {}): {} collectives begun{}, now {}", config_.noun,
                        worker.rank, worker.process, worker.progress.num_collectives,
                        worker.progress.num_collectives < num_collectives ? ", too few" : "",
                        worker.progress.doing);
    if (!worker.complaint.empty()) text += "; it said: " + worker.complaint;
  }
  is_noticed_ = true;
  throw WorkerFailure(text);
}

}  // namespace slime::cluster
