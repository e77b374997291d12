#include "sandbox/write_quietly.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace slime::sandbox {

ssize_t write_quietly(int descriptor, std::string_view bytes) {
  sigset_t broken, before;
  ::sigemptyset(&broken);
  ::sigaddset(&broken, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken, &before);
  const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
  const int error = errno;
  if (count < 0 && error == EPIPE) {
    const timespec at_once{};
    ::sigtimedwait(&broken, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return count;
}

}  // namespace slime::sandbox
