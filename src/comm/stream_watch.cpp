#include "comm/stream_watch.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "comm/rank_group.h"

namespace slime::comm {
namespace {

constexpr std::chrono::milliseconds kInterval{50};

}  // namespace

StreamWatch::StreamWatch(c10::Device device, std::chrono::milliseconds timeout, Calls calls)
    : device_(device),
      timeout_(timeout),
      calls_(std::move(calls)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

StreamWatch::~StreamWatch() {
  thread_.request_stop();
  changed_.notify_all();
  thread_.join();
}

c10::Event StreamWatch::record(const c10::Stream& stream) {
  std::optional<c10::Event> event;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = std::move(free_.back());
      free_.pop_back();
    }
  }
  // The flag is what gives an event its time.
  if (!event) {
    event.emplace(device_.type(), calls_.on_end ? c10::EventFlag::BACKEND_DEFAULT
                                                : c10::EventFlag::PYTORCH_DEFAULT);
  }
  event->record(stream);
  return std::move(*event);
}

void StreamWatch::reuse(Operation& operation) {
  if (operation.start) free_.push_back(std::move(*operation.start));
  if (operation.event) free_.push_back(std::move(*operation.event));
}

StreamWatch::Ticket StreamWatch::begin(std::function<std::string()> where, const char* what) {
  Operation operation{std::move(where), what, std::chrono::steady_clock::now(), {}, {}, 0};
  if (calls_.on_end)
    operation.start = record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  const std::lock_guard lock(mutex_);
  under_way_.push_back(std::move(operation));
  return std::prev(under_way_.end());
}

void StreamWatch::launched(Ticket ticket) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  c10::Event event = record(stream);
  const std::lock_guard lock(mutex_);
  ticket->event = std::move(event);
  ticket->stream = stream.id();
}

void StreamWatch::dropped(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  reuse(*ticket);
  under_way_.erase(ticket);
}

void StreamWatch::check() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw GroupError(failure_);
}

std::string StreamWatch::look() {
  const auto now = std::chrono::steady_clock::now();
  std::vector<c10::StreamId> busy;  // what is behind in the same stream has not ended either
  for (auto it = under_way_.begin(); it != under_way_.end();) {
    const bool waits = it->event && std::ranges::find(busy, it->stream) == busy.end();
    if (waits && it->event->query()) {
      if (it->start) calls_.on_end(it->start->elapsedTime(*it->event), it->what);
      reuse(*it);
      it = under_way_.erase(it);
      continue;
    }
    if (it->event) busy.push_back(it->stream);
    if (now - it->begin > timeout_)
      return fmt::format("{}: {} ms have passed", it->where(), timeout_.count());
    ++it;
  }
  return {};
}

void StreamWatch::watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, kInterval, [] { return false; });
      if (stop.stop_requested()) return;
      std::string failure;
      try {
        failure = look();
        if (failure.empty()) {
          const std::string problem = calls_.problem();
          if (!problem.empty()) {
            failure = under_way_.empty()
                          ? problem
                          : fmt::format("{}: {}", under_way_.front().where(), problem);
          }
        }
      } catch (const std::exception& error) {  // of the device itself
        failure = error.what();
      }
      if (failure.empty()) continue;
      failure_ = std::move(failure);
    }
    calls_.abort();
    return;
  }
}

}  // namespace slime::comm
