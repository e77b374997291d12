#include "cluster/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace slime::cluster {
namespace {

constexpr int kWatchMilliseconds = 100;
constexpr std::chrono::seconds kAbsence{1};  // looks are a tenth of that apart
constexpr std::chrono::milliseconds kTaskTimeout{60'000};
constexpr std::chrono::milliseconds kEndingPatience{3'000};

Progress progress_from(std::string_view payload) {
  Progress progress;
  const char* end = payload.data() + payload.size();
  const auto [rest, error] = std::from_chars(payload.data(), end, progress.num_collectives);
  if (error == std::errc{} && rest != end) progress.doing.assign(rest + 1, end);
  return progress;
}

}  // namespace

Workers::Workers(WorkersConfig config, Launcher& launcher, const Clock& clock)
    : config_(std::move(config)), clock_(clock), workers_(config_.count) {
  try {
    for (int i = 0; i < config_.count; ++i) {
      workers_[i].rank = config_.first_rank + i;
      start(workers_[i], launcher);
    }
  } catch (...) {
    close_data();
    throw;  // workers that were started end with workers_
  }
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Workers::~Workers() {
  watcher_.request_stop();
  {
    const std::lock_guard lock(mutex_);  // it looks before it waits for the owner to notice
  }
  changed_.notify_all();
  watcher_.join();
  close_data();
  for (Worker& worker : workers_) {
    if (!worker.process) continue;
    try {
      worker.channel->send(static_cast<uint32_t>(WorkerFrame::kStop), "", config_.stop_limit);
    } catch (const net::FrameError&) {  // it hangs, and is killed below
    }
  }
  const auto begin = clock_.now();
  for (const Worker& worker : workers_) {
    while (worker.process && !worker.process->ending() && clock_.now() - begin < config_.stop_limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill_all();
}

void Workers::start(Worker& worker, Launcher& launcher) {
  const int index = worker.rank - config_.first_rank;
  StartedWorker started = launcher.start(
      {.name = fmt::format("{} {}", config_.noun, worker.rank),
       .place = config_.places.empty() ? WorkerPlace{} : config_.places.at(index),
       .command = config_.command,
       .identity = config_.identity,
       .log = config_.log_folder / fmt::format("{}_{}.log", config_.noun, worker.rank),
       .has_data = config_.has_data});
  worker.process = std::move(started.process);
  worker.name = worker.process->name();
  worker.channel = std::make_unique<net::FrameChannel>(started.control);
  worker.data = started.data;
  worker.heard = clock_.now();
}

int Workers::take_data(int rank) {
  const int socket = std::exchange(of_rank(rank).data, -1);
  check(socket >= 0, "a worker's second connection is taken once");
  return socket;
}

void Workers::close_data() {
  for (Worker& worker : workers_)
    if (worker.data >= 0) ::close(std::exchange(worker.data, -1));
}

void Workers::watch(const std::stop_token& stop) {
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

std::string Workers::take_frames(Worker& worker) {
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

std::string Workers::take_frame(Worker& worker, net::Frame frame) {
  const auto type = static_cast<WorkerFrame>(frame.type);
  if (!worker.has_greeted && !config_.identity.token.empty()) {
    const std::string why = type == WorkerFrame::kGreeting
                                ? why_refused(config_.identity, frame.payload)
                                : "it does not begin with its epoch";
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

std::string Workers::judge(Worker& worker) {
  // A host that is cut off takes its workers with it, whose connections may look open for long.
  if (const auto ending = worker.process->ending()) {
    std::string last = take_frames(worker);  // it may have said more than how it ended
    return last.empty() ? describe(worker, *ending) : last;
  }
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

std::string Workers::describe(const Worker& worker, const std::string& what) const {
  std::string text = fmt::format("{} {} ({}) {}", config_.noun, worker.rank, worker.name, what);
  const std::string lines = worker.process ? worker.process->last_lines() : "";
  if (!lines.empty()) text += "\n" + lines;
  return text;
}

std::string Workers::ending(Worker& worker) {
  const auto begin = clock_.now();
  while (clock_.now() - begin < kEndingPatience) {
    if (auto ending = worker.process->ending()) return *ending;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return "closed its connection and was killed";
}

void Workers::fail(const std::string& message, bool is_configuration) {
  const std::lock_guard lock(mutex_);
  kill_all();
  failure_ = message;
  is_configuration_ = is_configuration;
  has_failed_ = true;
  changed_.notify_all();
}

void Workers::kill_all() {
  for (Worker& worker : workers_) {
    if (worker.process) worker.process->kill();
    worker.process.reset();
  }
}

Workers::Worker& Workers::of_rank(int rank) {
  return workers_.at(static_cast<std::size_t>(rank - config_.first_rank));
}

void Workers::check_alive() {
  if (!has_failed_) return;
  const std::lock_guard lock(mutex_);
  is_noticed_ = true;
  changed_.notify_all();
  if (is_configuration_) throw ConfigError(failure_);
  throw WorkerFailure(failure_);
}

void Workers::send_task(int rank, std::string_view payload) {
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

std::string Workers::answer(int rank, std::chrono::milliseconds timeout) {
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

void Workers::blame(const std::string& what, int64_t num_collectives) {
  std::unique_lock lock(mutex_);
  // What killed the connection is known a moment later.
  changed_.wait_for(lock, config_.blame_limit, [&] { return has_failed_.load(); });
  if (has_failed_) {
    lock.unlock();
    check_alive();
  }
  std::string text = what;
  for (const Worker& worker : workers_) {
    text += fmt::format("\n{} {} ({}): {} collectives begun{}, now {}", config_.noun, worker.rank,
                        worker.name, worker.progress.num_collectives,
                        worker.progress.num_collectives < num_collectives ? ", too few" : "",
                        worker.progress.doing);
    if (!worker.complaint.empty()) text += "; it said: " + worker.complaint;
  }
  is_noticed_ = true;
  throw WorkerFailure(text);
}

}  // namespace slime::cluster
