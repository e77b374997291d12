#include "cluster/worker_link.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/log_rotation.h"

namespace slime::cluster {
namespace {

constexpr std::chrono::milliseconds kSendTimeout{60'000};

int connected(int descriptor) {
  int type = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) {
    throw ConfigError(
        "slime worker is started by slime train (--actor-num-gpus-per-node), not by hand: it has "
        "no "
        "connection to a controller");
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return descriptor;
}

/// No destructors: a collective that waits for the dead would keep the process.
[[noreturn]] void leave() {
  std::fflush(nullptr);
  ::_exit(1);
}

}  // namespace

WorkerLink::WorkerLink(int descriptor, const RunIdentity& identity)
    : channel_(connected(descriptor)) {
  send(WorkerFrame::kGreeting, to_greeting(identity));
  heart_ = std::thread([this] { beat(); });
}

WorkerLink::~WorkerLink() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stops_.notify_all();
  heart_.join();
}

void WorkerLink::beat() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::string payload = fmt::format("{} {}", progress_.num_collectives, progress_.doing);
    lock.unlock();
    send(WorkerFrame::kHeartbeat, payload);
    rotate_own_output();
    lock.lock();
    stops_.wait_for(lock, kHeartbeatPeriod, [this] { return stopping_; });
  }
}

void WorkerLink::send(WorkerFrame type, std::string_view payload) {
  try {
    if (channel_.send(static_cast<uint32_t>(type), payload, kSendTimeout)) return;
    std::fputs("the controller is gone\n", stderr);
  } catch (const net::FrameError& error) {
    fmt::print(stderr, "the controller does not read: {}\n", error.what());
  }
  leave();
}

std::optional<std::string> WorkerLink::next_task() {
  set_progress({.num_collectives = progress_.num_collectives, .doing = "waiting for a task"});
  const auto frame = channel_.receive();
  if (!frame) {
    std::fputs("the controller is gone\n", stderr);
    leave();
  }
  if (frame->type == static_cast<uint32_t>(WorkerFrame::kStop)) return std::nullopt;
  check(frame->type == static_cast<uint32_t>(WorkerFrame::kTask), "a controller sends tasks");
  return frame->payload;
}

void WorkerLink::answer(std::string_view payload) { send(WorkerFrame::kAnswer, payload); }

void WorkerLink::report_failure(FailureCause cause, const std::string& message) {
  send(WorkerFrame::kFailure, static_cast<char>(cause) + message);
}

void WorkerLink::wait_for_end() {
  while (channel_.receive()) {
  }
  leave();
}

void WorkerLink::set_progress(Progress progress) {
  const std::lock_guard lock(mutex_);
  progress_ = std::move(progress);
}

}  // namespace slime::cluster
