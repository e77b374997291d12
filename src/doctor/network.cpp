#include "doctor/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/secret_urls.h"
#include "net/web_client.h"

namespace slime::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kHubPatience{3};

/// 0, or errno.
int try_port(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  const int yes = 1;  // as servers do: a connection that ended a minute ago is no reason
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool works =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(socket, 1) == 0;
  const int why = works ? 0 : errno;
  ::close(socket);
  return why;
}

std::size_t num_in(const fs::path& cache, std::string_view kind) {
  std::size_t count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cache, error))
    if (entry.path().filename().string().starts_with(kind)) ++count;
  return count;
}

/// Why there was no answer; empty: there was one. A name server that is silent is waited for as long as the system
/// does, so the request is left behind.
std::string why_unreachable(const hub::Settings& settings) {
  auto answer = std::make_shared<std::promise<std::string>>();
  std::future<std::string> future = answer->get_future();
  net::WebSettings web = settings.web;
  web.silence_limit = kHubPatience;
  std::thread([answer, web, url = settings.endpoint] {
    std::string why;
    try {
      const auto head = net::web_call({.method = "HEAD", .url = url}, web);
      if (!head) why = head.error().message;
    } catch (const std::exception& error) {
      why = error.what();
    }
    answer->set_value(std::move(why));
  }).detach();
  if (future.wait_for(kHubPatience) != std::future_status::ready)
    return fmt::format("no answer in {} s", kHubPatience.count());
  return future.get();
}

}  // namespace

Check check_ports(std::uint16_t port) {
  if (const int why = try_port(0)) {
    return {
        .area = "ports",
        .state = State::kProblem,
        .what = fmt::format("no server can listen on 127.0.0.1: {}", std::strerror(why)),
        .cure = "runs with several processes, functions of yours and slime serve need loopback"};
  }
  if (const int why = try_port(port)) {
    return {.area = "ports",
            .state = State::kNote,
            .what = fmt::format("127.0.0.1 works; port {} of slime serve is taken: {}", port,
                                std::strerror(why)),
            .cure = "another server runs; slime serve --port 0 picks a free port"};
  }
  return {.area = "ports", .what = fmt::format("127.0.0.1 works, port {} is free", port)};
}

Checks check_hub(const hub::Settings& settings) {
  Checks checks;
  checks.push_back({.area = "hub",
                    .what = fmt::format("cache {}: {} models, {} data sets",
                                        settings.cache.string(), num_in(settings.cache, "models--"),
                                        num_in(settings.cache, "datasets--"))});
  const std::string where = without_passwords(settings.endpoint);
  if (settings.is_offline) {
    checks.push_back({.area = "hub",
                      .state = State::kNote,
                      .what = "HF_HUB_OFFLINE is set: only what is in the cache"});
    return checks;
  }
  const std::string why = why_unreachable(settings);
  if (why.empty()) {
    checks.push_back({.area = "hub",
                      .what = fmt::format("{} answers{}", where,
                                          settings.token.empty() ? "" : "; there is a token")});
  } else {
    checks.push_back(
        {.area = "hub",
         .state = State::kNote,
         .what = fmt::format("{} is not reached: {}", where, without_passwords(why)),
         .cure = "names of models and data sets work as far as the cache has them; paths always do "
                 "(docs/names.md)"});
  }
  return checks;
}

}  // namespace slime::doctor
