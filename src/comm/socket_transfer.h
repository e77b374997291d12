#pragma once

/// Messages over connected sockets, many at once: what one rank sends and receives in an operation.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace slime::comm {

/// One message. Between two ends messages arrive in the order in which they are sent; each begins with its
/// number and its length, so that ranks that do not agree on what travels find out.
struct Transfer {
  enum class Direction { kSend, kReceive };
  Direction direction;
  int socket = -1;
  uint64_t number = 0;  // of this message on this socket, in this direction
  char* bytes = nullptr;
  std::size_t size = 0;  // of it; may be 0
  std::size_t num_done = 0;
  uint64_t head[2] = {};  // number and length

  bool is_done() const { return num_done == sizeof head + size; }
};

/// A message did not move in time, or its other end is gone, or it is another message.
class TransferError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Until all have moved, at most `left`. Those of one socket and direction are given in the order of their
/// numbers. Throws TransferError, after which none of the sockets is of use; it says that `timeout` is
/// what the operation had.
void move_all(std::span<Transfer> transfers, std::chrono::milliseconds left,
              std::chrono::milliseconds timeout);

}  // namespace slime::comm
