#pragma once

/// Typed frames over a connected stream socket: how processes of a run talk (ARCHITECTURE.md).
///
///   bytes   0..3     4..7    8..15     16..
///           "SLMF"   type    length    payload of `length` bytes
///
/// Numbers are little-endian. What a type means is the matter of the two ends. Both are processes
/// of this program; still every length is checked against a limit before anything is allocated.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace slime::net {

struct Frame {
  uint32_t type = 0;
  std::string payload;
};

/// The peer sent something that is no frame, or did not take ours in time.
class FrameError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class FrameChannel final {
 public:
  /// Owns `descriptor`, a connected stream socket, and makes it non-blocking.
  explicit FrameChannel(int descriptor, uint64_t limit_bytes = uint64_t{4} << 30);
  ~FrameChannel();
  FrameChannel(const FrameChannel&) = delete;
  FrameChannel& operator=(const FrameChannel&) = delete;

  int descriptor() const { return descriptor_; }
  /// Gives the socket away; what has arrived and was not taken is lost.
  int release();

  /// Sends a whole frame; any thread. False when the peer is gone. Throws FrameError when it has
  /// not taken the frame within `timeout`: the channel is of no use then.
  bool send(uint32_t type, std::string_view payload, std::chrono::milliseconds timeout);

  /// Both ends see the end of the stream; any thread. What waits in send() or receive() returns.
  void shut_down();

  // Receiving: one thread.

  /// Takes what has arrived, or some megabytes of it, without waiting. False once the peer has
  /// closed.
  bool read_available();
  /// The next whole frame that has arrived. Throws FrameError for bytes that are no frame.
  std::optional<Frame> next();
  /// Waits for a frame. Nothing when the peer has closed.
  std::optional<Frame> receive();
  /// The same, and what comes behind it stays in the socket: nothing is lost when it is released then.
  std::optional<Frame> receive_alone();

 private:
  /// Until so many bytes wait to be handed out; no more are read. False when the peer closes before.
  bool wait_for_bytes(std::size_t count);

  int descriptor_;
  uint64_t limit_bytes_;
  std::mutex send_mutex_;  // one frame at a time
  std::string arrived_;
  std::size_t taken_ = 0;  // bytes of arrived_ that were handed out
  bool is_open_ = true;
};

}  // namespace slime::net
