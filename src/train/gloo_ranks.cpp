#include "train/gloo_ranks.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

#define USE_C10D_GLOO  // the wheel is built with it
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace slime::train {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;
constexpr const char* kLoopback = "127.0.0.1";

class GlooRanks final : public Ranks {
 public:
  GlooRanks(const GlooConfig& config, Rendezvous* rendezvous) : config_(config) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(config.port);
    options.isServer = config.rank == 0;
    options.waitWorkers = false;
    options.timeout = config.connect_timeout;
    if (config.rank == 0) options.masterListenFd = rendezvous->release();
    guarded("joining the ranks", [&] {
      store_ = c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
      auto group = c10::make_intrusive<c10d::ProcessGroupGloo::Options>(config.connect_timeout);
      group->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(kLoopback));
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, config.rank, config.size, group);
      group_->barrier()->wait();
    });
  }

  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }

  void reduce_scatter_(const Tensor& x_N, const char* what) override {
    begin(what);
    guarded(what, [&] {
      for_all_parts(x_N, [&](int owner, std::vector<Tensor>& part) {
        c10d::ReduceOptions options;
        options.rootRank = owner;
        options.timeout = config_.timeout;
        return group_->reduce(part, options);
      });
    });
  }

  void all_gather_(const Tensor& x_N, const char* what) override {
    begin(what);
    guarded(what, [&] {
      // As bytes: Gloo knows fewer number types than we do.
      for_all_parts(x_N, [&](int owner, std::vector<Tensor>& part) {
        std::vector<Tensor> bytes{part[0].view(at::kByte)};
        c10d::BroadcastOptions options;
        options.rootRank = owner;
        options.timeout = config_.timeout;
        return group_->broadcast(bytes, options);
      });
    });
  }

  void gather_(const Tensor& x_N, const char* what) override {
    begin(what);
    guarded(what, [&] {
      for_each_part(x_N, [&](int owner, std::vector<Tensor>& part) {
        if (owner == 0 || (rank() != 0 && rank() != owner)) return;
        std::vector<Tensor> bytes{part[0].view(at::kByte)};
        const Work work = rank() == 0 ? group_->recv(bytes, owner, kGatherTag)
                                      : group_->send(bytes, 0, kGatherTag);
        work->wait(config_.timeout);
      });
    });
  }

  std::vector<std::string> all_gather(const std::string& bytes, const char* what) override {
    begin(what);
    std::vector<std::string> all;
    guarded(what, [&] {
      std::vector<int64_t> lengths;
      for (const Tensor& length :
           exchange(at::tensor({static_cast<int64_t>(bytes.size())}, at::kLong))) {
        lengths.push_back(length.item<int64_t>());
      }
      const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
      Tensor padded = at::zeros({std::max<int64_t>(longest, 1)}, at::kByte);
      std::memcpy(padded.mutable_data_ptr<uint8_t>(), bytes.data(), bytes.size());
      const std::vector<Tensor> everybodys = exchange(padded);
      for (std::size_t r = 0; r < everybodys.size(); ++r) {
        const auto* data = reinterpret_cast<const char*>(everybodys[r].const_data_ptr<uint8_t>());
        all.emplace_back(data, static_cast<std::size_t>(lengths[r]));
      }
    });
    return all;
  }

 private:
  static constexpr int kGatherTag = 1;

  void begin(const char* what) {
    if (config_.on_begin) config_.on_begin(num_begun_, what);
    ++num_begun_;
  }

  /// Whatever c10d and Gloo throw becomes a RanksError that names the operation.
  template <typename Fn>
  void guarded(const char* what, const Fn& fn) {
    try {
      fn();
    } catch (const BugError&) {
      throw;
    } catch (const std::exception& error) {
      throw RanksError(fmt::format("rank {}: {}: {}", rank(), what, first_line(error.what())));
    }
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  /// fn(owner, part) for the parts that have elements; the same ones on every rank.
  template <typename Fn>
  void for_each_part(const Tensor& x_N, const Fn& fn) {
    for (int owner = 0; owner < size(); ++owner) {
      const Part part = part_of(x_N.size(0), owner);
      if (part.size() == 0) continue;
      std::vector<Tensor> one{x_N.narrow(0, part.begin, part.size())};
      fn(owner, one);
    }
  }

  /// The same with all of them under way at once: start(owner, part) begins one, then all are
  /// waited for.
  template <typename Start>
  void for_all_parts(const Tensor& x_N, const Start& start) {
    std::vector<Work> works;
    for_each_part(
        x_N, [&](int owner, std::vector<Tensor>& part) { works.push_back(start(owner, part)); });
    for (const Work& work : works) work->wait();
  }

  /// Tensors of one shape from all ranks.
  std::vector<Tensor> exchange(const Tensor& mine) {
    std::vector<std::vector<Tensor>> theirs(1);
    for (int r = 0; r < size(); ++r) theirs[0].push_back(at::empty_like(mine));
    std::vector<Tensor> own{mine};
    c10d::AllgatherOptions options;
    options.timeout = config_.timeout;
    group_->allgather(theirs, own, options)->wait();
    return theirs[0];
  }

  GlooConfig config_;
  int64_t num_begun_ = 0;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

Rendezvous::Rendezvous() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool listens = socket_ >= 0 && ::bind(socket_, generic, sizeof address) == 0 &&
                       ::listen(socket_, SOMAXCONN) == 0 &&
                       ::getsockname(socket_, generic, &length) == 0;
  if (!listens) {
    const std::string why = std::strerror(errno);
    if (socket_ >= 0) ::close(socket_);
    throw ConfigError(
        fmt::format("ranks cannot meet: no port of {} to listen on: {}", kLoopback, why));
  }
  port_ = ntohs(address.sin_port);
}

Rendezvous::~Rendezvous() {
  if (socket_ >= 0) ::close(socket_);
}

int Rendezvous::release() { return std::exchange(socket_, -1); }

std::unique_ptr<Ranks> make_gloo_ranks(const GlooConfig& config, Rendezvous* rendezvous) {
  check(config.size > 1 && config.rank >= 0 && config.rank < config.size, "a rank is one of many");
  check((config.rank == 0) == (rendezvous != nullptr), "rank 0 brings the rendezvous");
  return std::make_unique<GlooRanks>(config, rendezvous);
}

}  // namespace slime::train
