#include "net/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace slime::net {
namespace {

sockaddr_in address_of(const std::string& text, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1)
    throw std::runtime_error(fmt::format("{} is no IPv4 address", text));
  return address;
}

const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

std::string text_of(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

void set_options(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

[[noreturn]] void close_and_throw(int socket, const std::string& what, int error) {
  ::close(socket);
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(error)));
}

}  // namespace

std::string resolve_ipv4(const std::string& host) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found); error != 0)
    throw std::runtime_error(fmt::format("{}: {}", host, ::gai_strerror(error)));
  const std::string text = text_of(*reinterpret_cast<const sockaddr_in*>(found->ai_addr));
  ::freeaddrinfo(found);
  return text;
}

int listen_on(const std::string& address, int port) {
  const sockaddr_in own = address_of(address, port);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) throw std::runtime_error(std::strerror(errno));
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket, generic(own), sizeof own) != 0 || ::listen(socket, SOMAXCONN) != 0)
    close_and_throw(socket, fmt::format("{}:{}", address, port), errno);
  return socket;
}

int port_of(int listening) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

int connect_to(const std::string& address, int port, std::chrono::milliseconds timeout) {
  const sockaddr_in peer = address_of(address, port);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) throw std::runtime_error(std::strerror(errno));
  set_options(socket);
  const std::string where = fmt::format("{}:{}", address, port);
  if (::connect(socket, generic(peer), sizeof peer) != 0) {
    if (errno != EINPROGRESS) close_and_throw(socket, where, errno);
    pollfd waiting{.fd = socket, .events = POLLOUT, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(timeout.count())) <= 0)
      close_and_throw(socket, where, ETIMEDOUT);
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) close_and_throw(socket, where, error);
  }
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) & ~O_NONBLOCK);
  return socket;
}

int accept_from(int listening) {
  const int socket = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket >= 0) set_options(socket);
  return socket;
}

int shut_down_all_to(const std::string& address) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.sin_family != AF_INET || text_of(peer) != address) continue;
    count += ::shutdown(descriptor, SHUT_RDWR) == 0 ? 1 : 0;
  }
  return count;
}

std::string peer_address(int socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return text_of(address);
}

}  // namespace slime::net
