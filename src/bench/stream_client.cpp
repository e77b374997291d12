#include "bench/stream_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace slime::bench {
namespace {

constexpr std::string_view kToken = "data: {";
constexpr std::string_view kEnd = "\r\n0\r\n\r\n";
constexpr double kRetrySeconds = 1;  // as Retry-After says
constexpr double kLastAnswers = 120;

/// By the clock of the kernel's time stamps.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Piece {
  std::string_view bytes;
  double time = 0;  // of its last byte
};

struct Stream {
  int socket = -1;
  enum class State { kHead, kEvents, kRefused } state = State::kHead;
  double asked = 0;
  double last = 0;   // token of this answer; 0: none yet
  double retry = 0;  // of kRefused
  std::string tail;  // the last bytes: what is looked for may come in two pieces
};

int count(std::string_view text, std::string_view word) {
  int number = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + word.size()))
    ++number;
  return number;
}

class Client final {
 public:
  Client(const StreamPlan& plan, StreamWatcher& watcher)
      : plan_(plan), watcher_(watcher), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
  ~Client() {
    for (const Stream& stream : streams_)
      if (stream.socket >= 0) ::close(stream.socket);
    ::close(epoll_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  StreamCounts run();

 private:
  void connect(Stream& stream);
  void ask(Stream& stream);
  void hang_up(Stream& stream);
  void end_answer(Stream& stream);
  void read(Stream& stream);
  void take(Stream& stream, Piece piece);
  bool is_measuring(double time) const { return time > begins_ && time < ends_; }

  const StreamPlan& plan_;
  StreamWatcher& watcher_;
  const int epoll_;
  double begins_ = 0, ends_ = 0;
  std::vector<Stream> streams_;
  int64_t num_open_ = 0;
  StreamCounts counts_;
  std::array<char, 256 << 10> buffer_;
};

void Client::connect(Stream& stream) {
  stream.socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(plan_.port);
  ::inet_pton(AF_INET, plan_.host.c_str(), &address.sin_addr);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(stream.socket, generic, sizeof address) != 0)
    throw ConfigError(
        fmt::format("no connection to {}:{}: {}", plan_.host, plan_.port, std::strerror(errno)));
  const int on = 1;
  ::setsockopt(stream.socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(stream.socket, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &stream}};
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, stream.socket, &event);
  ++num_open_;
}

void Client::ask(Stream& stream) {
  stream.state = Stream::State::kHead;
  stream.last = 0;
  stream.tail.clear();
  stream.asked = now();
  const auto sent = ::send(stream.socket, plan_.request.data(), plan_.request.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(plan_.request.size())) hang_up(stream);
}

void Client::hang_up(Stream& stream) {
  ::close(std::exchange(stream.socket, -1));
  --num_open_;
}

void Client::end_answer(Stream& stream) {
  if (now() < ends_) return ask(stream);
  hang_up(stream);
}

void Client::read(Stream& stream) {
  std::array<char, CMSG_SPACE(sizeof(timespec))> control{};
  iovec part{.iov_base = buffer_.data(), .iov_len = buffer_.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto size = ::recvmsg(stream.socket, &message, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    if (now() < ends_) ++counts_.num_lost;
    return hang_up(stream);
  }
  Piece piece{.bytes = {buffer_.data(), static_cast<std::size_t>(size)}};
  for (cmsghdr* field = CMSG_FIRSTHDR(&message); field != nullptr;
       field = CMSG_NXTHDR(&message, field)) {
    if (field->cmsg_level != SOL_SOCKET || field->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec time{};
    std::memcpy(&time, CMSG_DATA(field), sizeof time);
    piece.time = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  if (piece.time == 0) piece.time = now();
  take(stream, piece);
}

void Client::take(Stream& stream, Piece piece) {
  if (stream.state == Stream::State::kRefused) return;
  if (stream.state == Stream::State::kHead) {
    const int status = piece.bytes.size() < 12 ? 0 : std::atoi(piece.bytes.data() + 9);
    ++counts_.statuses[status];
    stream.state = status == 200 ? Stream::State::kEvents : Stream::State::kRefused;
    if (status != 200) {
      stream.retry = now() + kRetrySeconds;
      return;
    }
  }
  const int num_tokens = count(piece.bytes, kToken);
  if (num_tokens > 0) {
    if (is_measuring(piece.time)) {
      counts_.num_tokens += num_tokens;
      if (num_tokens > 1) counts_.num_together += num_tokens;
      if (stream.last > begins_) {
        const auto gap = static_cast<float>((piece.time - stream.last) / num_tokens);
        counts_.gaps.insert(counts_.gaps.end(), static_cast<std::size_t>(num_tokens), gap);
      }
      if (stream.last == 0)
        counts_.first_tokens.push_back(static_cast<float>(piece.time - stream.asked));
    }
    stream.last = piece.time;
  }
  stream.tail.append(
      piece.bytes.substr(piece.bytes.size() - std::min<std::size_t>(64, piece.bytes.size())));
  if (stream.tail.size() > 64) stream.tail.erase(0, stream.tail.size() - 64);
  if (stream.tail.ends_with(kEnd) && stream.tail.find("[DONE]") != std::string::npos) {
    if (is_measuring(piece.time)) ++counts_.num_answers;
    end_answer(stream);
  }
}

StreamCounts Client::run() {
  streams_.resize(static_cast<std::size_t>(plan_.num_streams));
  begins_ = now() + plan_.warm_up_seconds;
  ends_ = begins_ + plan_.seconds;
  for (Stream& stream : streams_) {
    connect(stream);
    ask(stream);
  }
  std::array<epoll_event, 512> events{};
  double next_tick = begins_;
  while (num_open_ > 0 && now() < ends_ + kLastAnswers) {
    const int number = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 100);
    for (int i = 0; i < number; ++i) read(*static_cast<Stream*>(events[i].data.ptr));
    const double time = now();
    if (time < next_tick) continue;
    if (next_tick == begins_) watcher_.begin();
    if (time < ends_ + 1) watcher_.tick();
    next_tick += 1;
    for (Stream& stream : streams_) {
      if (stream.socket < 0 || stream.state != Stream::State::kRefused || stream.retry > time)
        continue;
      end_answer(stream);
    }
  }
  return std::move(counts_);
}

}  // namespace

StreamCounts run_streams(const StreamPlan& plan, StreamWatcher& watcher) {
  const auto client = std::make_unique<Client>(plan, watcher);
  return client->run();
}

}  // namespace slime::bench
