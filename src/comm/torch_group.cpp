#include "comm/torch_group.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <exception>
#include <future>
#include <utility>
#include <vector>

#include "comm/nccl_library.h"
#include "comm/nccl_peers.h"
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

/// Where the ranks of a group find one another.
c10::intrusive_ptr<c10d::Store> store_of(const TorchGroupConfig& config, bool is_server) {
  c10d::TCPStoreOptions at;
  at.port = static_cast<uint16_t>(config.port);
  at.isServer = is_server;
  at.timeout = config.timeout;
  // PyTorch's stores count who comes, and the trainer's waits for all.
  at.numWorkers = static_cast<std::size_t>(config.world_size);
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::TCPStore>(config.address, at);
  const char* device = config.backend == TorchBackend::kNccl ? "cuda/" : "cpu/";
  for (const std::string& prefix : {config.name, config.name + "/", std::string(device)})
    store = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
  return store;
}

std::string joining(const TorchGroupConfig& config) {
  return fmt::format("joining the group {} at {}:{}", config.name, config.address, config.port);
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> join_gloo(const TorchGroupConfig& config, int own) {
  try {
    const auto options = c10d::ProcessGroupGloo::Options::create(config.timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(
        own_address_towards(config.address, config.port)));
    const bool is_server = config.holds_store && own == config.rank;
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store_of(config, is_server), own,
                                                       config.world_size, options);
  } catch (const GroupError&) {
    throw;
  } catch (const std::exception& error) {
    fail(joining(config), error);
  }
}

class GlooGroup final : public TorchGroup {
 public:
  explicit GlooGroup(const TorchGroupConfig& config)
      : name_(config.name), timeout_(config.timeout) {
    // Each waits for all others.
    std::vector<std::future<c10::intrusive_ptr<c10d::ProcessGroupGloo>>> joins;
    for (int i = 0; i < config.num_ranks; ++i)
      joins.push_back(std::async(std::launch::async, join_gloo, config, config.rank + i));
    for (auto& join : joins) join.wait();
    for (auto& join : joins) ranks_.push_back(join.get());
  }

  at::Device device() const override { return at::kCPU; }

  void broadcast(const Tensor& tensor) override {
    try {
      c10d::BroadcastOptions options;
      options.rootRank = 0;
      options.timeout = timeout_;
      std::vector<std::vector<at::Tensor>> tensors;
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        tensors.push_back({i == 0 ? tensor : at::empty_like(tensor)});
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        works.push_back(ranks_[i]->broadcast(tensors[i], options));
      for (const auto& work : works) work->wait(timeout_);
    } catch (const std::exception& error) {
      fail(fmt::format("a broadcast in the group {}", name_), error);
    }
  }

 private:
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  std::vector<c10::intrusive_ptr<c10d::ProcessGroupGloo>> ranks_;
};

/// The id that rank 0's communicator has put into the store, as ProcessGroupNCCL does: the first one's key
/// is its number.
NcclUniqueId nccl_id_of(c10d::Store& store, const std::string& where) {
  NcclUniqueId id{};
  try {
    const std::vector<uint8_t> bytes = store.get("0");
    if (bytes.size() != sizeof id.bytes)
      throw GroupError(fmt::format("{}: the store has no NCCL id", where));
    std::memcpy(id.bytes, bytes.data(), sizeof id.bytes);
  } catch (const GroupError&) {
    throw;
  } catch (const std::exception& error) {
    fail(where, error);
  }
  return id;
}

class NcclTorchGroup final : public TorchGroup {
 public:
  explicit NcclTorchGroup(const TorchGroupConfig& config) : config_(config) {
    nccl();  // before anybody waits for anybody
    try {
      store_ = store_of(config, config.holds_store);
    } catch (const std::exception& error) {
      fail(joining(config), error);
    }
  }

  at::Device device() const override { return {at::kCUDA, 0}; }

  void broadcast(const Tensor& tensor) override {
    if (!comm_) {
      const NcclUniqueId id = config_.rank == 0 ? put_id() : nccl_id_of(*store_, joining(config_));
      comm_ = std::make_unique<NcclPeers>(id, config_.rank, config_.world_size, config_.timeout);
    }
    comm_->broadcast(tensor, 0, fmt::format("a broadcast in the group {}", config_.name));
  }

 private:
  NcclUniqueId put_id() {
    NcclUniqueId id{};
    if (nccl().get_unique_id(&id) != NcclResult::kSuccess)
      throw GroupError(joining(config_) + ": NCCL makes no id");
    store_->set("0", std::vector<uint8_t>(id.bytes, id.bytes + sizeof id.bytes));
    return id;
  }

  const TorchGroupConfig config_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<NcclPeers> comm_;  // from the first broadcast on
};

}  // namespace

std::unique_ptr<TorchGroup> join_torch_group(const TorchGroupConfig& config) {
  if (config.backend == TorchBackend::kNccl) return std::make_unique<NcclTorchGroup>(config);
  return std::make_unique<GlooGroup>(config);
}

}  // namespace slime::comm
