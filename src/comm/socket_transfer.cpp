#include "comm/socket_transfer.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <vector>

namespace slime::comm {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// The messages of one socket and direction.
struct Line {
  std::vector<Transfer*> messages;
  std::size_t next = 0;
  bool is_done() const { return next == messages.size(); }
};

/// What is left of a message, head and payload.
class Rest {
 public:
  explicit Rest(Transfer& message) {
    constexpr std::size_t kHead = sizeof message.head;
    auto* head = reinterpret_cast<char*>(message.head);
    const std::size_t done = message.num_done;
    if (done < kHead) parts_[count_++] = {head + done, kHead - done};
    const std::size_t payload = done < kHead ? 0 : done - kHead;
    if (payload < message.size)
      parts_[count_++] = {message.bytes + payload, message.size - payload};
    header_.msg_iov = parts_.data();
    header_.msg_iovlen = count_;
  }
  msghdr* header() { return &header_; }

 private:
  std::array<iovec, 2> parts_{};
  std::size_t count_ = 0;
  msghdr header_{};
};

/// Throws where the message that arrives is another one than the one that is waited for.
void check_head(const Transfer& message) {
  if (message.direction == Transfer::Direction::kSend || message.num_done < sizeof message.head)
    return;
  if (message.head[0] == message.number && message.head[1] == message.size) return;
  throw TransferError(
      fmt::format("message {} of {} bytes is waited for, and message {} of {} bytes came",
                  message.number, message.size, message.head[0], message.head[1]));
}

/// As far as it goes without waiting. False: it has to be waited for.
bool move_on(Transfer& message) {
  while (!message.is_done()) {
    Rest rest(message);
    const bool sends = message.direction == Transfer::Direction::kSend;
    const ssize_t count =
        sends ? ::sendmsg(message.socket, rest.header(), MSG_NOSIGNAL | MSG_DONTWAIT)
              : ::recvmsg(message.socket, rest.header(), MSG_DONTWAIT);
    if (count > 0) {
      message.num_done += static_cast<std::size_t>(count);
      check_head(message);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    throw TransferError("the other end closed its connection");
  }
  return true;
}

}  // namespace

void move_all(std::span<Transfer> transfers, milliseconds left, milliseconds timeout) {
  const auto deadline = Steady::now() + left;
  std::map<std::pair<int, Transfer::Direction>, Line> lines;
  for (Transfer& message : transfers) {
    if (message.direction == Transfer::Direction::kSend) {
      message.head[0] = message.number;
      message.head[1] = message.size;
    }
    lines[{message.socket, message.direction}].messages.push_back(&message);
  }
  for (;;) {
    std::vector<pollfd> waiting;
    for (auto& [key, line] : lines) {
      while (!line.is_done() && move_on(*line.messages[line.next])) ++line.next;
      if (line.is_done()) continue;
      const bool sends = key.second == Transfer::Direction::kSend;
      waiting.push_back(
          {.fd = key.first, .events = static_cast<short>(sends ? POLLOUT : POLLIN), .revents = 0});
    }
    if (waiting.empty()) return;
    const auto more = std::chrono::ceil<milliseconds>(deadline - Steady::now()).count();
    if (more <= 0) {
      const auto moved = std::ranges::count_if(transfers, &Transfer::is_done);
      throw TransferError(
          fmt::format("{} of {} messages have moved: {} ms, the time for all of them, have passed",
                      moved, transfers.size(), timeout.count()));
    }
    ::poll(waiting.data(), waiting.size(), static_cast<int>(std::min<int64_t>(more, 60'000)));
  }
}

}  // namespace slime::comm
