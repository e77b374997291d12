#include "cluster/parent_watch.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace slime::cluster {
namespace {

constexpr int kLookMilliseconds = 200;

/// False at the end of the pipe.
bool read_away() {
  std::array<char, 4096> bytes{};
  const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  return count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

ParentWatch::ParentWatch(std::function<void()> ended)
    : ended_(std::move(ended)), parent_(::getppid()), thread_([this] { watch(); }) {}

ParentWatch::~ParentWatch() {
  is_over_ = true;
  thread_.join();
}

void ParentWatch::watch() const {
  while (!is_over_) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input, 1, kLookMilliseconds);
    const bool is_closed = ready > 0 && !read_away();
    if (is_over_ || (!is_closed && ::getppid() == parent_)) continue;
    return ended_();
  }
}

}  // namespace slime::cluster
