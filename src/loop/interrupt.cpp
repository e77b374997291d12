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

void on_signal(int signal) {
  const bool is_first = !requested_flag.exchange(true);
  // Kernel, shell and session may each tell of the same terminal's end.
  if (!is_first && signal == SIGHUP) return;
  if (!is_first) {
    say("\nstopping now; the last checkpoint is intact\n");
    _exit(Interrupt::kExitCode);
  }
  say("\nfinishing this step, then saving (once more: stop now)\n");
}

bool is_ignored(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);  // nohup's wish stands
}

}  // namespace

Interrupt::Interrupt() {
  requested_flag = false;
  install(on_signal);
}

Interrupt::~Interrupt() { install(SIG_DFL); }

const std::atomic<bool>& Interrupt::requested() const { return requested_flag; }

}  // namespace slime::loop
