#include "loop/interrupt.h"

#include <unistd.h>
#include <csignal>

#include <cstring>

namespace slime::loop {
namespace {

std::atomic<bool> requested_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may set it");

void say(const char* text) {
  // Nothing can be done when standard error is gone.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_signal(int) {
  if (requested_flag.exchange(true)) {
    say("\nstopping now; the last checkpoint is intact\n");
    _exit(Interrupt::kExitCode);
  }
  say("\nfinishing this step, then saving (once more: stop now)\n");
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  requested_flag = false;
  install(on_signal);
}

Interrupt::~Interrupt() { install(SIG_DFL); }

const std::atomic<bool>& Interrupt::requested() const { return requested_flag; }

}  // namespace slime::loop
