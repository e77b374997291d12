#pragma once

/// For tests: a client of a gateway that reads when it is told to.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "net/tcp.h"

namespace slime::gateway {

class RawClient final {
 public:
  RawClient(const std::string& url, const std::string& request) {
    const auto port = std::stoi(url.substr(url.rfind(':') + 1));
    socket_ = net::connect_to("127.0.0.1", port, std::chrono::seconds(5));
    EXPECT_EQ(::send(socket_, request.data(), request.size(), 0),
              static_cast<ssize_t>(request.size()));
  }
  ~RawClient() { hang_up(); }
  void hang_up() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  /// Until the gateway closes the connection. A text that a head may have as well, such as "0" and two
  /// line ends behind a request's id, is no sign of a stream's end.
  std::string read_to_end() { return read_until("\r\nno such text\r\n"); }
  /// Until `end` has come, or the end.
  std::string read_until(const std::string& end) {
    std::string text;
    char piece[4096];
    while (text.find(end) == std::string::npos) {
      const auto count = ::recv(socket_, piece, sizeof piece, 0);
      if (count <= 0) break;
      text.append(piece, static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  int socket_ = -1;
};

inline std::string raw_post(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

}  // namespace slime::gateway
