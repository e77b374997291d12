#include "net/frame_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace slime::net {
namespace {

static_assert(std::endian::native == std::endian::little,
              "frames are written as they lie in memory");

constexpr uint32_t kMagic = 0x464d4c53;  // "SLMF"
constexpr std::size_t kReadBytes = std::size_t{1} << 16;
/// A peer that writes as fast as we read is not read for ever.
constexpr std::size_t kMostAtOnce = std::size_t{4} << 20;

struct Head {
  uint32_t magic = kMagic;
  uint32_t type = 0;
  uint64_t length = 0;
};
static_assert(sizeof(Head) == 16);

using Steady = std::chrono::steady_clock;

/// Milliseconds until then, as poll wants them.
int until(Steady::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Steady::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

}  // namespace

FrameChannel::FrameChannel(int descriptor, uint64_t limit_bytes)
    : descriptor_(descriptor), limit_bytes_(limit_bytes) {
  ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
}

FrameChannel::~FrameChannel() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int FrameChannel::release() { return std::exchange(descriptor_, -1); }

bool FrameChannel::send(uint32_t type, std::string_view payload,
                        std::chrono::milliseconds timeout) {
  const std::lock_guard lock(send_mutex_);
  const auto deadline = Steady::now() + timeout;
  const Head head{.type = type, .length = payload.size()};
  const std::string_view parts[] = {{reinterpret_cast<const char*>(&head), sizeof head}, payload};
  for (std::string_view rest : parts) {
    while (!rest.empty()) {
      const ssize_t sent = ::send(descriptor_, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        rest.remove_prefix(static_cast<std::size_t>(sent));
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
      pollfd waiting{.fd = descriptor_, .events = POLLOUT, .revents = 0};
      if (::poll(&waiting, 1, until(deadline)) == 0 && Steady::now() >= deadline) {
        throw FrameError(fmt::format("{} bytes of a frame were not taken within {} ms", rest.size(),
                                     timeout.count()));
      }
    }
  }
  return true;
}

bool FrameChannel::read_available() {
  // What was handed out goes when it is the greater part: each byte is moved once at most.
  if (taken_ > arrived_.size() / 2) {
    arrived_.erase(0, taken_);
    taken_ = 0;
  }
  const std::size_t most = arrived_.size() + kMostAtOnce;
  while (is_open_ && arrived_.size() < most) {
    const std::size_t before = arrived_.size();
    arrived_.resize(before + kReadBytes);
    const ssize_t count = ::recv(descriptor_, arrived_.data() + before, kReadBytes, 0);
    arrived_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count > 0 || (count < 0 && errno == EINTR)) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    is_open_ = false;
  }
  return is_open_;
}

void FrameChannel::shut_down() { ::shutdown(descriptor_, SHUT_RDWR); }

std::optional<Frame> FrameChannel::next() {
  Head head;
  const std::string_view rest = std::string_view(arrived_).substr(taken_);
  if (rest.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, rest.data(), sizeof head);
  if (head.magic != kMagic) throw FrameError("what arrived is no frame");
  if (head.length > limit_bytes_) {
    throw FrameError(
        fmt::format("a frame of {} bytes is above the limit of {}", head.length, limit_bytes_));
  }
  if (rest.size() - sizeof head < head.length) return std::nullopt;
  Frame frame{head.type, std::string(rest.substr(sizeof head, head.length))};
  taken_ += sizeof head + head.length;
  if (taken_ == arrived_.size()) {
    arrived_.clear();
    taken_ = 0;
  }
  return frame;
}

bool FrameChannel::wait_for_bytes(std::size_t count) {
  while (arrived_.size() - taken_ < count) {
    const std::size_t before = arrived_.size();
    arrived_.resize(taken_ + count);
    const ssize_t read = ::recv(descriptor_, arrived_.data() + before, arrived_.size() - before, 0);
    const int reason = errno;
    arrived_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
    if (read > 0 || (read < 0 && reason == EINTR)) continue;
    if (read == 0 || (reason != EAGAIN && reason != EWOULDBLOCK)) return is_open_ = false;
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, -1);
  }
  return true;
}

std::optional<Frame> FrameChannel::receive_alone() {
  if (!wait_for_bytes(sizeof(Head))) return std::nullopt;
  Head head;
  std::memcpy(&head, arrived_.data() + taken_, sizeof head);
  const bool is_frame = head.magic == kMagic && head.length <= limit_bytes_;
  if (is_frame && !wait_for_bytes(sizeof head + head.length)) return std::nullopt;
  return next();  // throws where it is none
}

std::optional<Frame> FrameChannel::receive() {
  for (;;) {
    if (auto frame = next()) return frame;
    if (!is_open_) return std::nullopt;
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, -1);
    read_available();
  }
}

}  // namespace slime::net
