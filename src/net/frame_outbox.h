#pragma once

/// Frames that wait to be sent, and the thread that sends them: whoever posts one does not wait for
/// the peer. Frames go in the order in which they were posted.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "net/frame_channel.h"

namespace slime::net {

struct FrameOutboxConfig {
  std::chrono::milliseconds send_limit{60'000};  // for the peer to take a frame
  uint64_t limit_bytes = uint64_t{1} << 30;      // that wait
};

class FrameOutbox final {
 public:
  /// `on_failure` is called once, on the sending thread, when the peer is gone or does not take a
  /// frame in time; nothing is sent any more then. `channel` outlives the object.
  FrameOutbox(FrameChannel& channel, FrameOutboxConfig config,
              std::function<void(const std::string&)> on_failure);
  /// What waits is not sent. A frame that is being sent is waited for: shut the channel down where
  /// that may take long.
  ~FrameOutbox();
  FrameOutbox(const FrameOutbox&) = delete;
  FrameOutbox& operator=(const FrameOutbox&) = delete;

  // Any thread. False: nothing is sent any more, or, for post() alone, too much waits.

  bool post(uint32_t type, std::string payload);
  /// Waits until there is room.
  bool post_when_room(uint32_t type, std::string payload);
  /// A frame whose payload is made when its turn comes, on the sending thread.
  bool post_made(uint32_t type, std::function<std::string()> make);

  /// Nothing is sent any more; on_failure has been called, or is about to be.
  bool is_closed() const;

 private:
  struct Waiting {
    uint32_t type = 0;
    std::string payload;
    std::function<std::string()> make;  // in the place of the payload
  };

  void add(Waiting frame);
  void run(const std::stop_token& stop);

  FrameChannel& channel_;
  const FrameOutboxConfig config_;
  const std::function<void(const std::string&)> on_failure_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_;  // guarded by mutex_
  uint64_t waiting_bytes_ = 0;   // guarded by mutex_; with the frame that is being sent
  bool is_closed_ = false;       // guarded by mutex_
  std::jthread thread_;
};

}  // namespace slime::net
