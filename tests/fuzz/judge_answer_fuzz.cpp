// Bytes as what a judge or a teacher sends back: a reward or a failure, nothing else. The bytes go
// through a socket, so the HTTP client reads them as it reads a server's.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/reward_number.h"
#include "reward/remote.h"

using namespace slime;

namespace {

/// Answers each connection with the bytes it was given last. Lives as long as the program.
class Server {
 public:
  Server() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, any, size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, any, &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    std::thread([this] { serve(); }).detach();
  }

  void set_answer(std::string bytes) {
    const std::lock_guard lock(mutex_);
    answer_ = std::make_shared<const std::string>(std::move(bytes));
  }

  /// Another address of this machine each time: ports of closed connections stay taken for a while.
  std::string next_url() {
    ++num_calls_;
    return "http://127.0." + std::to_string(num_calls_ / 200 % 200 + 1) + "." +
           std::to_string(num_calls_ % 200 + 1) + ":" + std::to_string(port_) + "/";
  }

 private:
  void serve() {
    for (;;) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) continue;
      std::shared_ptr<const std::string> answer;
      {
        const std::lock_guard lock(mutex_);
        answer = answer_;
      }
      ::send(connection, answer->data(), answer->size(), MSG_NOSIGNAL);
      ::shutdown(connection, SHUT_WR);
      std::array<char, 4096> request{};
      while (::recv(connection, request.data(), request.size(), 0) > 0) {
      }
      ::close(connection);
    }
  }

  const int listener_;
  int port_ = 0;
  uint64_t num_calls_ = 0;
  std::mutex mutex_;
  std::shared_ptr<const std::string> answer_;  // guarded by mutex_
};

}  // namespace

/// The first byte chooses who is asked.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static Server& server = *new Server();
  if (size == 0) return 0;
  server.set_answer(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  const reward::RemoteReward how{
      .url = server.next_url(), .num_attempts = 1, .timeout = std::chrono::seconds(5)};
  Sample sample;
  sample.tokens = {1, 2, 3};
  sample.prompt_length = 1;
  if (data[0] % 2 == 0) {
    const auto answer = reward::ask_judge(how, sample);
    for (const char* key : {"", "score"}) {
      const Expected<double> number = answer ? reward_number(*answer, key) : failure("");
      if (number && !std::isfinite(*number)) std::abort();
    }
  } else if (const auto answer = reward::ask_teacher(how, 1.0, sample)) {
    if (answer->at("teacher_log_probs").as_array().size() != 2) std::abort();
  }
  return 0;
}
