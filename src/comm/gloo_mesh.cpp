#include "comm/gloo_mesh.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

#define USE_C10D_GLOO  // the wheel is built with it
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace slime::comm {
namespace {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
constexpr uint32_t kMostTags = 1U << 30;
constexpr std::chrono::milliseconds kShortestWait{1};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Whatever c10d and Gloo throw becomes a GroupError; `where` says what was under way.
template <typename Where, typename Fn>
void guarded(const Where& where, const Fn& fn) {
  try {
    fn();
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    throw GroupError(fmt::format("{}: {}", where(), first_line(error.what())));
  }
}

/// What the groups of a mesh share; it lives as long as the last of them.
struct Connection {
  GlooConfig config;
  int64_t num_begun = 0;
  c10::intrusive_ptr<c10d::TCPStore> store;
};

c10d::ReduceOp::RedOpType type_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMax:
      return c10d::ReduceOp::MAX;
    case Reduction::kMin:
      return c10d::ReduceOp::MIN;
    case Reduction::kSum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

/// The same memory as bytes: Gloo knows fewer number types than we do.
Tensor bytes_of(const Tensor& x) {
  check(x.is_contiguous(), "what travels is contiguous");
  return x.view({-1}).view(at::kByte);
}

class GlooGroup final : public RankGroup {
 public:
  GlooGroup(std::shared_ptr<Connection> connection, Axis axis, const std::vector<int>& members)
      : connection_(std::move(connection)),
        axis_(axis),
        size_(static_cast<int>(members.size())),
        sent_(members.size()),
        received_(members.size()) {
    const GlooConfig& config = connection_->config;
    rank_ = static_cast<int>(std::ranges::find(members, config.rank) - members.begin());
    check(rank_ < size_, "a rank connects the groups it is in");
    const auto where = [&] {
      return fmt::format("rank {}: joining the ranks over {}", config.rank, name_of(axis));
    };
    guarded(where, [&] {
      auto options = c10::make_intrusive<c10d::ProcessGroupGloo::Options>(config.connect_timeout);
      options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(config.address));
      const auto store = c10::make_intrusive<c10d::PrefixStore>(
          fmt::format("{}/{}/{}", config.token, name_of(axis), members.front()),
          connection_->store);
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank_, size_, options);
      group_->barrier()->wait();
    });
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce_(const Tensor& x, const char* what, Reduction reduction) override {
    run("all-reduce", what, [&] {
      check(x.is_contiguous(), "what travels is contiguous");
      if (x.numel() == 0) return;  // for every member
      std::vector<Tensor> one{x};
      c10d::AllreduceOptions options;
      options.reduceOp = type_of(reduction);
      options.timeout = timeout();
      group_->allreduce(one, options)->wait();
    });
  }

  void reduce_scatter_(const Tensor& x_N, std::span<const Range> shards,
                       const char* what) override {
    // Not Gloo's own, which copies the buffer.
    run("reduce-scatter", what, [&] {
      for_all_shards(x_N, shards, [&](int owner, const Tensor& shard) {
        std::vector<Tensor> one{shard};
        c10d::ReduceOptions options;
        options.rootRank = owner;
        options.timeout = timeout();
        return group_->reduce(one, options);
      });
    });
  }

  void all_gather_(const Tensor& x_N, std::span<const Range> shards, const char* what) override {
    run("all-gather", what, [&] {
      for_all_shards(x_N, shards,
                     [&](int owner, const Tensor& shard) { return start_broadcast(shard, owner); });
    });
  }

  void broadcast_(const Tensor& x, int root, const char* what) override {
    run("broadcast", what, [&] {
      if (x.numel() > 0) start_broadcast(x, root)->wait();
    });
  }

  void exchange(std::span<const Message> messages, const char* operation,
                const char* what) override {
    run(operation, what, [&] {
      Works works;
      for (const Message& message : messages) {
        check(message.peer >= 0 && message.peer < size_ && message.peer != rank_,
              "a message goes to another member");
        if (message.x.numel() == 0) continue;
        std::vector<Tensor> one{bytes_of(message.x)};
        const bool sends = message.direction == Message::Direction::kSend;
        const int tag = next_tag(sends ? sent_ : received_, message.peer);
        works.push_back(sends ? group_->send(one, message.peer, tag)
                              : group_->recv(one, message.peer, tag));
      }
      wait_for(works, "messages");
    });
  }

  void barrier(const char* what) override {
    run("barrier", what, [&] {
      c10d::BarrierOptions options;
      options.timeout = timeout();
      group_->barrier(options)->wait();
    });
  }

  std::vector<std::string> all_gather(const std::string& bytes, const char* what) override {
    std::vector<std::string> all;
    run("all-gather", what, [&] {
      std::vector<int64_t> lengths;
      for (const Tensor& length :
           everybodys(at::tensor({static_cast<int64_t>(bytes.size())}, at::kLong))) {
        lengths.push_back(length.item<int64_t>());
      }
      const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
      Tensor padded = at::zeros({std::max<int64_t>(longest, 1)}, at::kByte);
      std::memcpy(padded.mutable_data_ptr<uint8_t>(), bytes.data(), bytes.size());
      const std::vector<Tensor> texts = everybodys(padded);
      for (std::size_t r = 0; r < texts.size(); ++r) {
        const auto* data = reinterpret_cast<const char*>(texts[r].const_data_ptr<uint8_t>());
        all.emplace_back(data, static_cast<std::size_t>(lengths[r]));
      }
    });
    return all;
  }

 private:
  std::chrono::milliseconds timeout() const { return connection_->config.timeout; }

  template <typename Fn>
  void run(const char* operation, const char* what, const Fn& fn) {
    const GlooConfig& config = connection_->config;
    if (config.on_begin) config.on_begin(connection_->num_begun, what);
    ++connection_->num_begun;
    const auto where = [&] {
      return fmt::format("rank {}: {}: {} over {} ({} of {})", config.rank, what, operation,
                         name_of(axis_), rank_, size_);
    };
    guarded(where, fn);
  }

  /// start(owner, shard) begins one operation for each shard that has elements, the same ones on
  /// every rank; then all are waited for.
  template <typename Start>
  void for_all_shards(const Tensor& x_N, std::span<const Range> shards, const Start& start) {
    check(static_cast<int>(shards.size()) == size_, "each member has a shard");
    Works works;
    for (int owner = 0; owner < size_; ++owner) {
      const Range& shard = shards[owner];
      if (shard.size() > 0) works.push_back(start(owner, x_N.narrow(0, shard.begin, shard.size())));
    }
    wait_for(works, "shards");
  }

  /// One deadline for all of them. `nouns`: what each of them moves.
  void wait_for(const Works& works, const char* nouns) const {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + timeout();
    for (std::size_t i = 0; i < works.size(); ++i) {
      // c10d takes no time at all for no limit.
      const auto left = std::max(
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()), kShortestWait);
      std::string why = "it was cancelled";
      try {
        if (works[i]->wait(left)) continue;
      } catch (const std::exception& error) {
        why = first_line(error.what());
      }
      if (Clock::now() >= deadline)
        why = fmt::format("{} ms, the time for all of them, have passed", timeout().count());
      throw std::runtime_error(
          fmt::format("{} of {} {} have moved: {}", i, works.size(), nouns, why));
    }
  }

  Works::value_type start_broadcast(const Tensor& x, int root) {
    std::vector<Tensor> one{bytes_of(x)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = timeout();
    return group_->broadcast(one, options);
  }

  /// Tensors of one shape from all ranks.
  std::vector<Tensor> everybodys(const Tensor& mine) {
    std::vector<std::vector<Tensor>> all(1);
    for (int r = 0; r < size_; ++r) all[0].push_back(at::empty_like(mine));
    std::vector<Tensor> own{mine};
    c10d::AllgatherOptions options;
    options.timeout = timeout();
    group_->allgather(all, own, options)->wait();
    return all[0];
  }

  /// Both ends number the messages between them, so that those under way at once are not mixed up.
  static int next_tag(std::vector<uint32_t>& counts, int peer) {
    return static_cast<int>(counts[static_cast<std::size_t>(peer)]++ % kMostTags);
  }

  std::shared_ptr<Connection> connection_;
  Axis axis_;
  int rank_ = 0;
  int size_;
  std::vector<uint32_t> sent_;      // messages to each member so far
  std::vector<uint32_t> received_;  // from each member
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

/// Rank 0 says which epoch the ranks meet in, where only who has the token can find it.
void compare_epochs(const GlooConfig& config, c10d::TCPStore& store) {
  const std::string key = config.token + "/epoch";
  if (config.rank == 0) {
    const std::string epoch = std::to_string(config.epoch);
    store.set(key, std::vector<uint8_t>(epoch.begin(), epoch.end()));
    return;
  }
  const std::vector<uint8_t> bytes = store.get(key);
  const std::string epoch(bytes.begin(), bytes.end());
  if (epoch == std::to_string(config.epoch)) return;
  throw GroupError(
      fmt::format("rank {} is refused: it is of epoch {}, and the ranks meet in epoch {}",
                  config.rank, config.epoch, epoch));
}

}  // namespace

Rendezvous::Rendezvous(const std::string& address_text)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool listens = ::inet_pton(AF_INET, address_text.c_str(), &address.sin_addr) == 1 &&
                       socket_ >= 0 && ::bind(socket_, generic, sizeof address) == 0 &&
                       ::listen(socket_, SOMAXCONN) == 0 &&
                       ::getsockname(socket_, generic, &length) == 0;
  if (!listens) {
    const std::string why = std::strerror(errno);
    if (socket_ >= 0) ::close(socket_);
    throw ConfigError(
        fmt::format("ranks cannot meet: no port of {} to listen on: {}", address_text, why));
  }
  port_ = ntohs(address.sin_port);
}

Rendezvous::~Rendezvous() {
  if (socket_ >= 0) ::close(socket_);
}

int Rendezvous::release() { return std::exchange(socket_, -1); }

std::unique_ptr<Mesh> make_gloo_mesh(const GlooConfig& config, Rendezvous* rendezvous,
                                     const WrapGroup& wrap) {
  check(config.layout.world_size() > 1, "one rank has Mesh::single()");
  check((config.rank == 0) == (rendezvous != nullptr), "rank 0 brings the rendezvous");
  auto connection = std::make_shared<Connection>();
  connection->config = config;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(config.port);
  options.isServer = config.rank == 0;
  options.waitWorkers = false;
  options.timeout = config.connect_timeout;
  if (config.rank == 0) options.masterListenFd = rendezvous->release();
  const auto where = [&] { return fmt::format("rank {}: joining the ranks", config.rank); };
  guarded(where, [&] {
    connection->store = c10::make_intrusive<c10d::TCPStore>(config.meeting, options);
  });
  guarded(where, [&] { compare_epochs(config, *connection->store); });
  return std::make_unique<Mesh>(
      config.layout, config.rank, [&](Axis axis, const std::vector<int>& members) {
        std::unique_ptr<RankGroup> group = std::make_unique<GlooGroup>(connection, axis, members);
        return wrap ? wrap(std::move(group), axis) : std::move(group);
      });
}

}  // namespace slime::comm
