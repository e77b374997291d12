#include "net/frame_outbox.h"

#include <utility>

namespace slime::net {

FrameOutbox::FrameOutbox(FrameChannel& channel, FrameOutboxConfig config,
                         std::function<void(const std::string&)> on_failure)
    : channel_(channel), config_(config), on_failure_(std::move(on_failure)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

FrameOutbox::~FrameOutbox() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
}

void FrameOutbox::add(Waiting frame) {
  waiting_bytes_ += frame.payload.size();
  waiting_.push_back(std::move(frame));
  changed_.notify_all();
}

bool FrameOutbox::post(uint32_t type, std::string payload) {
  const std::lock_guard lock(mutex_);
  const bool has_room =
      waiting_bytes_ == 0 || waiting_bytes_ + payload.size() <= config_.limit_bytes;
  if (is_closed_ || !has_room) return false;
  add({.type = type, .payload = std::move(payload), .make = nullptr});
  return true;
}

bool FrameOutbox::post_when_room(uint32_t type, std::string payload) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return is_closed_ || waiting_bytes_ == 0 ||
           waiting_bytes_ + payload.size() <= config_.limit_bytes;
  });
  if (is_closed_) return false;
  add({.type = type, .payload = std::move(payload), .make = nullptr});
  return true;
}

bool FrameOutbox::post_made(uint32_t type, std::function<std::string()> make) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  add({.type = type, .payload = {}, .make = std::move(make)});
  return true;
}

bool FrameOutbox::is_closed() const {
  const std::lock_guard lock(mutex_);
  return is_closed_;
}

void FrameOutbox::run(const std::stop_token& stop) {
  for (;;) {
    Waiting frame;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return is_closed_ || !waiting_.empty(); })) return;
      if (is_closed_) return;
      frame = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const uint64_t counted = frame.payload.size();
    std::string wrong;
    try {
      if (frame.make) frame.payload = frame.make();
      if (!channel_.send(frame.type, frame.payload, config_.send_limit))
        wrong = "the other end is gone";
    } catch (const FrameError& error) {
      wrong = error.what();
    }
    {
      const std::lock_guard lock(mutex_);
      waiting_bytes_ -= counted;
      is_closed_ |= !wrong.empty();
    }
    changed_.notify_all();
    if (!wrong.empty()) return on_failure_(wrong);
  }
}

}  // namespace slime::net
