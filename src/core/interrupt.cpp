#include "core/interrupt.h"

#include <unistd.h>
#include <csignal>
#include <ctime>

#include <cstring>

namespace slime::core {
namespace {

/// Whoever stops a program may tell it twice at once: `timeout` tells the process and its group. No
/// finger is as fast.
constexpr int64_t kSameWishNanoseconds = 100'000'000;

constexpr const char* kFirstWords =
    "ending this step, then saving what is trained (once more: stop now)\n";

std::atomic<bool> requested_flag{false};
std::atomic<bool> has_display{false};
std::atomic<bool> words_wait{false};
std::atomic<int> num_objects{0};
std::atomic<int64_t> requested_at{0};  // nanoseconds of the monotonic clock
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "a signal handler may set them");

int64_t nanoseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a signal handler
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void say(const char* text) {
  // Nothing can be done when standard error is gone.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_signal(int signal) {
  const bool is_first = !requested_flag.exchange(true);
  if (is_first) requested_at = nanoseconds_now();
  // Kernel, shell and session may each tell of the same terminal's end.
  if (!is_first && signal == SIGHUP) return;
  if (!is_first && nanoseconds_now() - requested_at < kSameWishNanoseconds) return;
  if (!is_first) {
    say("\nstopping now; the last checkpoint is intact\n");
    _exit(Interrupt::kExitCode);
  }
  if (has_display) {
    words_wait = true;
    return;
  }
  say("\n");
  say(kFirstWords);
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
  if (num_objects++ > 0) return;
  requested_flag = false;
  words_wait = false;
  install(on_signal);
}

Interrupt::~Interrupt() {
  if (--num_objects == 0) install(SIG_DFL);
}

void Interrupt::leave_words_to_a_display(bool is_there) {
  has_display = is_there;
  if (!is_there && words_wait.exchange(false)) say(kFirstWords);
}

std::string Interrupt::take_words() { return words_wait.exchange(false) ? kFirstWords : ""; }

const std::atomic<bool>& Interrupt::requested() const { return requested_flag; }

const std::atomic<bool>& Interrupt::flag() { return requested_flag; }

void Interrupt::stop_now(const std::string& why) {
  say(("\n" + why + "; stopping now; the last checkpoint is intact\n").c_str());
  _exit(kExitCode);
}

}  // namespace slime::core
