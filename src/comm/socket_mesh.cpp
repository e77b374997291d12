#include "comm/socket_mesh.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "comm/rank_meeting.h"
#include "comm/socket_transfer.h"
#include "core/error.h"
#include "net/tcp.h"

namespace slime::comm {
namespace {

/// Up to so many bytes an all-reduce is one message to everybody: what it costs is waiting.
constexpr std::size_t kSmallBytes = std::size_t{64} << 10;
/// Of each member, that wait to be added at a time.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

/// What goes wrong becomes a GroupError; `where` says what was under way.
template <typename Where, typename Fn>
void guarded(const Where& where, const Fn& fn) {
  try {
    fn();
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    throw GroupError(fmt::format("{}: {}", where(), first_line_of(error.what())));
  }
}

/// What the groups of a mesh share; it lives as long as the last of them.
struct Shared {
  SocketMeshConfig config;
  int64_t num_begun = 0;
};

/// The memory of a contiguous tensor.
std::span<char> memory_of(const Tensor& x) {
  check(x.is_contiguous() && x.is_cpu(), "what travels is contiguous, and on the CPU");
  return {static_cast<char*>(x.data_ptr()), x.nbytes()};
}

std::vector<Range> even_shards(int64_t n, int size) {
  std::vector<Range> shards;
  for (int r = 0; r < size; ++r) shards.push_back({n * r / size, n * (r + 1) / size});
  return shards;
}

/// What all members have, in the order of the ranks. All of one type and length.
Tensor reduced(const std::vector<Tensor>& parts, Reduction reduction) {
  const at::ScalarType type = parts[0].scalar_type();
  const bool is_short = type == at::kBFloat16 || type == at::kHalf;
  Tensor all = is_short ? parts[0].to(at::kFloat) : parts[0].clone();
  for (std::size_t r = 1; r < parts.size(); ++r) {
    if (reduction == Reduction::kSum) {
      all.add_(parts[r]);
    } else if (reduction == Reduction::kMax) {
      all.copy_(at::maximum(all, parts[r]));
    } else {
      all.copy_(at::minimum(all, parts[r]));
    }
  }
  return all;
}

class SocketGroup final : public RankGroup {
 public:
  SocketGroup(std::shared_ptr<Shared> shared, RankMeeting& meeting, Axis axis,
              const std::vector<int>& members)
      : shared_(std::move(shared)),
        axis_(axis),
        sockets_(members.size(), -1),
        num_sent_(members.size()),
        num_received_(members.size()) {
    const SocketMeshConfig& config = shared_->config;
    rank_ = static_cast<int>(std::ranges::find(members, config.rank) - members.begin());
    check(rank_ < size(), "a rank connects the groups it is in");
    const auto where = [&] {
      return fmt::format("rank {}: joining the ranks over {}", config.rank, name_of(axis));
    };
    guarded(where, [&] {
      for (int r = 0; r < size(); ++r)
        if (r != rank_) sockets_[at(r)] = meeting.connect(static_cast<int>(axis), members[at(r)]);
    });
  }
  ~SocketGroup() override {
    for (const int socket : sockets_)
      if (socket >= 0) ::close(socket);
  }
  SocketGroup(const SocketGroup&) = delete;
  SocketGroup& operator=(const SocketGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sockets_.size()); }

  void all_reduce_(const Tensor& x, const char* what, Reduction reduction) override {
    run("all-reduce", what, [&] {
      if (x.numel() == 0) return;  // for every member
      if (memory_of(x).size() <= kSmallBytes)
        return reduce_piece(x, std::vector<Tensor>(sockets_.size(), x), reduction);
      const Tensor x_N = x.view({-1});
      const std::vector<Range> shards = even_shards(x.numel(), size());
      reduce_shards(x_N, shards, reduction);
      gather_shards(x_N, shards);
    });
  }

  void reduce_scatter_(const Tensor& x_N, std::span<const Range> shards,
                       const char* what) override {
    run("reduce-scatter", what, [&] { reduce_shards(x_N, shards, Reduction::kSum); });
  }

  void all_gather_(const Tensor& x_N, std::span<const Range> shards, const char* what) override {
    run("all-gather", what, [&] { gather_shards(x_N, shards); });
  }

  /// What is long goes in shards, each to one member who hands it on: the root's connection is no bottleneck.
  void broadcast_(const Tensor& x, int root, const char* what) override {
    run("broadcast", what, [&] {
      const std::span<char> all = memory_of(x);
      if (all.size() <= kSmallBytes) {
        begin();
        for (int r = 0; r < size(); ++r)
          if (rank_ == root && r != root) send(r, all);
        if (rank_ != root) receive(root, all);
        return move();
      }
      const std::vector<Range> shards = even_shards(static_cast<int64_t>(all.size()), size());
      const auto shard = [&](int r) {
        return all.subspan(at(shards[at(r)].begin), at(shards[at(r)].size()));
      };
      begin();
      for (int r = 0; r < size(); ++r) {
        if (r == root) continue;
        if (rank_ == root) {
          send(r, shard(r));
          send(r, shard(root));
        } else if (r == rank_) {
          receive(root, shard(r));
          receive(root, shard(root));
        }
      }
      move();
      begin();
      for (int r = 0; r < size(); ++r) {
        if (r == root || r == rank_ || rank_ == root) continue;
        send(r, shard(rank_));
        receive(r, shard(r));
      }
      move();
    });
  }

  void exchange(std::span<const Message> messages, const char* operation,
                const char* what) override {
    run(operation, what, [&] {
      begin();
      for (const Message& message : messages) {
        check(message.peer >= 0 && message.peer < size() && message.peer != rank_,
              "a message goes to another member");
        if (message.x.numel() == 0) continue;
        const bool sends = message.direction == Message::Direction::kSend;
        sends ? send(message.peer, memory_of(message.x))
              : receive(message.peer, memory_of(message.x));
      }
      move();
    });
  }

  void barrier(const char* what) override {
    run("barrier", what, [&] { with_everybody({}, [](int) { return std::span<char>(); }); });
  }

  std::vector<std::string> all_gather(const std::string& bytes, const char* what) override {
    std::vector<std::string> all(sockets_.size());
    run("all-gather", what, [&] {
      std::vector<uint64_t> lengths(sockets_.size(), bytes.size());
      const auto length_of = [&](int r) {
        return std::span(reinterpret_cast<char*>(&lengths[at(r)]), sizeof(uint64_t));
      };
      with_everybody(length_of(rank_), length_of);
      for (int r = 0; r < size(); ++r) all[at(r)].resize(lengths[at(r)]);
      all[at(rank_)] = bytes;
      const auto text_of = [&](int r) { return std::span(all[at(r)]); };
      with_everybody(text_of(rank_), text_of);
    });
    return all;
  }

 private:
  static std::size_t at(int64_t index) { return static_cast<std::size_t>(index); }

  template <typename Fn>
  void run(const char* operation, const char* what, const Fn& fn) {
    const SocketMeshConfig& config = shared_->config;
    if (config.on_begin) config.on_begin(shared_->num_begun, what);
    ++shared_->num_begun;
    const auto where = [&] {
      return fmt::format("rank {}: {}: {} over {} ({} of {})", config.rank, what, operation,
                         name_of(axis_), rank_, size());
    };
    deadline_ = std::chrono::steady_clock::now() + config.timeout;
    guarded(where, fn);
  }

  // One operation's messages.

  void begin() { transfers_.clear(); }
  void send(int peer, std::span<char> bytes) {
    add(Transfer::Direction::kSend, peer, bytes, num_sent_[at(peer)]++);
  }
  void receive(int peer, std::span<char> bytes) {
    add(Transfer::Direction::kReceive, peer, bytes, num_received_[at(peer)]++);
  }
  void add(Transfer::Direction direction, int peer, std::span<char> bytes, uint64_t number) {
    transfers_.push_back({.direction = direction,
                          .socket = sockets_[at(peer)],
                          .number = number,
                          .bytes = bytes.data(),
                          .size = bytes.size()});
  }
  void move() {
    if (transfers_.empty()) return;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    move_all(transfers_, std::clamp(left, std::chrono::milliseconds(0), timeout()), timeout());
  }
  std::chrono::milliseconds timeout() const { return shared_->config.timeout; }

  /// `own` to all others, and of each of them as many bytes as place(r) has.
  template <typename Place>
  void with_everybody(std::span<char> own, const Place& place) {
    begin();
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      send(r, own);
      receive(r, place(r));
    }
    move();
  }

  /// parts[r] goes to member r; `own`, which is parts[rank], becomes the sum of what came for it.
  void reduce_piece(const Tensor& own, const std::vector<Tensor>& parts, Reduction reduction) {
    std::vector<Tensor> came(sockets_.size());
    begin();
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      came[at(r)] = at::empty_like(own);
      if (parts[at(r)].numel() > 0) send(r, memory_of(parts[at(r)]));
      if (own.numel() > 0) receive(r, memory_of(came[at(r)]));
    }
    came[at(rank_)] = own;
    move();
    if (own.numel() > 0) own.copy_(reduced(came, reduction));
  }

  void reduce_shards(const Tensor& x_N, std::span<const Range> shards, Reduction reduction) {
    check(static_cast<int>(shards.size()) == size(), "each member has a shard");
    const int64_t piece = std::max<int64_t>(1, kPieceBytes / x_N.element_size());
    int64_t longest = 0;
    for (const Range& shard : shards) longest = std::max(longest, shard.size());
    for (int64_t first = 0; first < longest; first += piece) {
      std::vector<Tensor> parts;
      for (const Range& shard : shards) {
        const int64_t begin = std::min(first, shard.size());
        parts.push_back(x_N.narrow(0, shard.begin + begin, std::min(piece, shard.size() - begin)));
      }
      reduce_piece(parts[at(rank_)], parts, reduction);
    }
  }

  void gather_shards(const Tensor& x_N, std::span<const Range> shards) {
    check(static_cast<int>(shards.size()) == size(), "each member has a shard");
    const auto shard = [&](int r) {
      return memory_of(x_N.narrow(0, shards[at(r)].begin, shards[at(r)].size()));
    };
    begin();
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      if (shards[at(rank_)].size() > 0) send(r, shard(rank_));
      if (shards[at(r)].size() > 0) receive(r, shard(r));
    }
    move();
  }

  std::shared_ptr<Shared> shared_;
  Axis axis_;
  int rank_ = 0;
  std::vector<int> sockets_;            // to each member; -1: this one
  std::vector<uint64_t> num_sent_;      // messages to each member so far
  std::vector<uint64_t> num_received_;  // from each member
  std::vector<Transfer> transfers_;     // of the operation
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace

Rendezvous::Rendezvous(const std::string& address) {
  try {
    socket_ = net::listen_on(address, 0);
  } catch (const std::runtime_error& error) {
    throw ConfigError(
        fmt::format("ranks cannot meet: no port of {} to listen on: {}", address, error.what()));
  }
  port_ = net::port_of(socket_);
}

Rendezvous::~Rendezvous() {
  if (socket_ >= 0) ::close(socket_);
}

int Rendezvous::release() { return std::exchange(socket_, -1); }

std::unique_ptr<Mesh> make_socket_mesh(const SocketMeshConfig& config, Rendezvous* rendezvous,
                                       const WrapGroup& wrap) {
  check(config.layout.world_size() > 1, "one rank has Mesh::single()");
  check((config.rank == 0) == (rendezvous != nullptr), "rank 0 brings the rendezvous");
  auto shared = std::make_shared<Shared>();
  shared->config = config;
  std::optional<Rendezvous> own;
  if (rendezvous == nullptr) rendezvous = &own.emplace(config.address);
  std::optional<RankMeeting> meeting;
  const auto where = [&] { return fmt::format("rank {}: joining the ranks", config.rank); };
  guarded(where, [&] { meeting.emplace(shared->config, rendezvous->release()); });
  return std::make_unique<Mesh>(
      config.layout, config.rank, [&](Axis axis, const std::vector<int>& members) {
        std::unique_ptr<RankGroup> group =
            std::make_unique<SocketGroup>(shared, *meeting, axis, members);
        return wrap ? wrap(std::move(group), axis) : std::move(group);
      });
}

}  // namespace slime::comm
