#include "cli/standard_output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>

namespace slime::cli {
namespace {

[[noreturn]] void throw_unwritten(int reason) {
  throw std::system_error(reason, std::generic_category(), "standard output");
}

bool has_closed_reader() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw_unwritten(errno);
}

void require_written() {
  const bool has_lost_something = std::ferror(stdout) != 0;
  const int failure = std::fflush(stdout) == 0 ? 0 : errno;
  if (failure == EPIPE || (failure == 0 && !has_lost_something) || has_closed_reader()) return;
  if (failure != 0) throw_unwritten(failure);
  throw std::runtime_error("standard output: not all of it could be written");
}

}  // namespace slime::cli
