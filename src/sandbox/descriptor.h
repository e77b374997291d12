#pragma once

/// Open descriptors that close themselves.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

namespace slime::sandbox {

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

/// Both ends close on exec.
struct Pipe {
  Descriptor read;
  Descriptor write;
};
inline Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "a pipe for a sandbox");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// write(2) without the signal of a pipe that nobody reads, which would end this program.
ssize_t write_quietly(int descriptor, std::string_view bytes);

}  // namespace slime::sandbox
