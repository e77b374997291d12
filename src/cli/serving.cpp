#include "cli/serving.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/error.h"

namespace slime::cli {

std::string read_key(const std::string& file, const char* variable) {
  std::string key;
  if (file.empty()) {
    const char* value = std::getenv(variable);
    key = value == nullptr ? "" : value;
  } else {
    std::ifstream stream(file);
    std::getline(stream, key);
    while (!key.empty() && std::isspace(static_cast<unsigned char>(key.back()))) key.pop_back();
    if (key.empty()) throw ConfigError(file + ": the first line must hold the key");
  }
  if (key.size() > 512)
    throw ConfigError(
        fmt::format("{}: a key has at most 512 bytes", file.empty() ? variable : file));
  return key;
}

sigset_t block_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

void end_at_next(sigset_t stop_signals) {
  sigdelset(&stop_signals, SIGHUP);  // of one terminal's end several may tell
  std::thread([stop_signals] {
    int next = 0;
    sigwait(&stop_signals, &next);
    std::_Exit(128 + next);
  }).detach();
}

}  // namespace slime::cli
