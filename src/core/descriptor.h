#pragma once

/// Open descriptors that close themselves.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace slime {

class Descriptor final {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int get() const { return number_; }  // -1: none
  void reset() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_ = -1;
};

/// Its ends close on exec.
struct Pipe {
  Descriptor read;
  Descriptor write;
};
/// Throws std::system_error with its purpose: "a pipe to a child".
inline Pipe make_pipe(const char* purpose) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), purpose);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace slime
