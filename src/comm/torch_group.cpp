#include "comm/torch_group.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "comm/rank_group.h"

#define USE_C10D_GLOO  // the wheel is built with it
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace slime::comm {
namespace {

[[noreturn]] void fail(const std::string& what, const std::exception& error) {
  const std::string text = error.what();
  throw GroupError(fmt::format("{}: {}", what, text.substr(0, text.find('\n'))));
}

/// The address of this machine from which `host` is reached. Nothing is sent.
std::string own_address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw GroupError(fmt::format("{}: is no address of a machine", host));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    std::array<char, INET6_ADDRSTRLEN> text{};
    const bool is_known = ::connect(socket, each->ai_addr, each->ai_addrlen) == 0 &&
                          ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                          ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text.data(),
                                        text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
    ::close(socket);
    if (is_known) return text.data();
  }
  throw GroupError(fmt::format("{}: cannot be reached from here", host));
}

class GlooGroup final : public TorchGroup {
 public:
  explicit GlooGroup(const TorchGroupConfig& config)
      : name_(config.name), timeout_(config.timeout) {
    const std::string where =
        fmt::format("joining the group {} at {}:{}", config.name, config.address, config.port);
    try {
      c10d::TCPStoreOptions at;
      at.port = static_cast<uint16_t>(config.port);
      at.isServer = config.holds_store;
      at.waitWorkers = false;
      at.timeout = config.timeout;
      c10::intrusive_ptr<c10d::Store> store =
          c10::make_intrusive<c10d::TCPStore>(config.address, at);
      for (const std::string& prefix : {config.name, config.name + "/", std::string("cpu/")})
        store = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
      const auto options = c10d::ProcessGroupGloo::Options::create(config.timeout);
      options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(
          own_address_towards(config.address, config.port)));
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, config.rank, config.world_size,
                                                           options);
    } catch (const GroupError&) {
      throw;
    } catch (const std::exception& error) {
      fail(where, error);
    }
  }

  void broadcast(const Tensor& tensor) override {
    try {
      std::vector<at::Tensor> tensors{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = 0;
      options.timeout = timeout_;
      group_->broadcast(tensors, options)->wait(timeout_);
    } catch (const std::exception& error) {
      fail(fmt::format("a broadcast in the group {}", name_), error);
    }
  }

 private:
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<TorchGroup> join_torch_group(const TorchGroupConfig& config) {
  return std::make_unique<GlooGroup>(config);
}

}  // namespace slime::comm
