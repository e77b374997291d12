#include "comm/nccl_mesh.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/call_gate.h"
#include "comm/nccl_library.h"
#include "comm/side_stream.h"
#include "comm/stream_watch.h"
#include "core/error.h"

namespace slime::comm {
namespace {

const c10::Device kDevice(c10::kCUDA, 0);

/// For calls that only put work into a stream. What takes longer waits for other ranks, and an abort is
/// what sets it free.
constexpr std::chrono::seconds kCallsEnd{2};

bool has_failed(NcclResult result) {
  return result != NcclResult::kSuccess && result != NcclResult::kInProgress;
}

/// What the groups of a mesh share; it lives as long as the last of them.
class Connection final {
 public:
  explicit Connection(const SocketMeshConfig& config)
      : config_(config),
        watch_(kDevice, config.timeout,
               {[this] { return problem(); }, [this] { abort(); }, config.on_end}) {}

  const SocketMeshConfig& config() const { return config_; }
  StreamWatch& watch() { return watch_; }
  CallGate& gate() { return gate_; }

  void begin(const char* what) {
    if (config_.on_begin) config_.on_begin(num_begun_, what);
    ++num_begun_;
  }

  void add(NcclComm comm) {
    const std::lock_guard lock(mutex_);
    comms_.push_back(comm);
  }
  /// Not NCCL's destroy, which waits for the other ranks.
  void remove(NcclComm comm) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::ranges::find(comms_, comm);
      if (found == comms_.end()) return;  // aborted
      comms_.erase(found);
    }
    nccl().comm_abort(comm);
  }

 private:
  std::string problem() {
    const std::lock_guard lock(mutex_);
    for (NcclComm comm : comms_) {
      NcclResult error = NcclResult::kSuccess;
      const NcclResult asked = nccl().comm_get_async_error(comm, &error);
      for (const NcclResult result : {asked, error}) {
        if (has_failed(result)) return nccl().problem(result);
      }
    }
    return {};
  }

  /// All at once: an abort waits for what its communicator has in the stream, which may be behind the
  /// operations of another one.
  void abort() {
    gate_.close(kCallsEnd);
    std::vector<NcclComm> comms;
    {
      const std::lock_guard lock(mutex_);
      comms.swap(comms_);
    }
    std::vector<std::jthread> threads;
    for (NcclComm comm : comms) threads.emplace_back([comm] { nccl().comm_abort(comm); });
  }

  SocketMeshConfig config_;
  int64_t num_begun_ = 0;
  CallGate gate_;
  std::mutex mutex_;
  std::vector<NcclComm> comms_;  // guarded by mutex_
  StreamWatch watch_;            // the last: its thread looks at the others
};

NcclType type_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case at::kByte:
      return NcclType::kUint8;
    case at::kChar:
      return NcclType::kInt8;
    case at::kInt:
      return NcclType::kInt32;
    case at::kLong:
      return NcclType::kInt64;
    case at::kHalf:
      return NcclType::kFloat16;
    case at::kFloat:
      return NcclType::kFloat32;
    case at::kDouble:
      return NcclType::kFloat64;
    case at::kBFloat16:
      return NcclType::kBfloat16;
    default:
      break;
  }
  throw BugError("numbers that are added on a GPU are floating point or integers");
}

NcclSum sum_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMax:
      return NcclSum::kMax;
    case Reduction::kMin:
      return NcclSum::kMin;
    case Reduction::kSum:
      break;
  }
  return NcclSum::kSum;
}

bool is_on_gpu(const Tensor& x) {
  check(x.is_contiguous(), "what travels is contiguous");
  return x.is_cuda();
}

std::size_t bytes_of(const Tensor& x, int64_t elements) {
  return static_cast<std::size_t>(elements) * x.element_size();
}

/// One after another, of one length, over all of x.
bool are_equal(const Tensor& x_N, std::span<const Range> shards) {
  int64_t next = 0;
  for (const Range& shard : shards) {
    if (shard.begin != next || shard.size() != shards[0].size()) return false;
    next = shard.end;
  }
  return next == x_N.numel();
}

/// Whether `stream` is being recorded; then its events cannot be asked.
bool is_recording(NcclStream stream) {
  using IsCapturing = int(void*, int*);
  static auto* const is_capturing = [] {
    void* function = ::dlsym(RTLD_DEFAULT, "cudaStreamIsCapturing");
    if (function == nullptr) function = ::dlsym(RTLD_DEFAULT, "hipStreamIsCapturing");
    return reinterpret_cast<IsCapturing*>(function);
  }();
  int status = 0;
  return is_capturing != nullptr && is_capturing(stream, &status) == 0 && status != 0;
}

class NcclGroup final : public RankGroup {
 public:
  NcclGroup(std::shared_ptr<Connection> connection, std::unique_ptr<RankGroup> host, Axis axis)
      : connection_(std::move(connection)), host_(std::move(host)), axis_(axis) {
    NcclUniqueId id{};
    if (rank() == 0) require(nccl().get_unique_id(&id), "joining the ranks", "join");
    const auto ids = host_->all_gather(std::string(id.bytes, sizeof id.bytes), "joining the ranks");
    std::memcpy(id.bytes, ids.at(0).data(), sizeof id.bytes);
    NcclConfig nccl_config;
    if (axis == Axis::kTp) nccl_config.max_ctas = kProcessorsOfMessages;
    require(nccl().comm_init_rank(&comm_, size(), id, rank(), &nccl_config), "joining the ranks",
            "join");
    connection_->add(comm_);
    // NCCL connects with the first operation: now, so that plans of memory see its buffers.
    const Tensor one = at::ones({1}, at::TensorOptions(at::kFloat).device(kDevice));
    all_reduce_(one, "joining the ranks", Reduction::kSum);
    barrier("joining the ranks");
  }
  ~NcclGroup() override { connection_->remove(comm_); }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_reduce_(const Tensor& x, const char* what, Reduction reduction) override {
    if (!is_on_gpu(x)) return on_host([&] { host_->all_reduce_(x, what, reduction); });
    run("all-reduce", what, x.numel() > 0, [&](NcclStream stream) {
      void* data = x.mutable_data_ptr();
      return nccl().all_reduce(data, data, static_cast<std::size_t>(x.numel()), type_of(x),
                               sum_of(reduction), comm_, stream);
    });
  }

  void reduce_scatter_(const Tensor& x_N, std::span<const Range> shards,
                       const char* what) override {
    check(static_cast<int>(shards.size()) == size(), "each member has a shard");
    if (!is_on_gpu(x_N)) return on_host([&] { host_->reduce_scatter_(x_N, shards, what); });
    const NcclType type = type_of(x_N);
    run("reduce-scatter", what, x_N.numel() > 0, [&](NcclStream stream) {
      if (are_equal(x_N, shards)) {
        return nccl().reduce_scatter(x_N.data_ptr(), at(x_N, shards[own()]),
                                     static_cast<std::size_t>(shards[0].size()), type,
                                     NcclSum::kSum, comm_, stream);
      }
      return together([&](int owner) {
        void* data = at(x_N, shards[static_cast<std::size_t>(owner)]);
        const auto count = static_cast<std::size_t>(shards[static_cast<std::size_t>(owner)].size());
        return count == 0
                   ? NcclResult::kSuccess
                   : nccl().reduce(data, data, count, type, NcclSum::kSum, owner, comm_, stream);
      });
    });
  }

  void all_gather_(const Tensor& x_N, std::span<const Range> shards, const char* what) override {
    check(static_cast<int>(shards.size()) == size(), "each member has a shard");
    if (!is_on_gpu(x_N)) return on_host([&] { host_->all_gather_(x_N, shards, what); });
    run("all-gather", what, x_N.numel() > 0, [&](NcclStream stream) {
      if (are_equal(x_N, shards)) {
        return nccl().all_gather(at(x_N, shards[own()]), x_N.data_ptr(),
                                 bytes_of(x_N, shards[0].size()), NcclType::kUint8, comm_, stream);
      }
      return together([&](int owner) {
        const Range& shard = shards[static_cast<std::size_t>(owner)];
        void* data = at(x_N, shard);
        return shard.size() == 0 ? NcclResult::kSuccess
                                 : nccl().broadcast(data, data, bytes_of(x_N, shard.size()),
                                                    NcclType::kUint8, owner, comm_, stream);
      });
    });
  }

  void broadcast_(const Tensor& x, int root, const char* what) override {
    if (!is_on_gpu(x)) return on_host([&] { host_->broadcast_(x, root, what); });
    run("broadcast", what, x.numel() > 0, [&](NcclStream stream) {
      void* data = x.mutable_data_ptr();
      return nccl().broadcast(data, data, bytes_of(x, x.numel()), NcclType::kUint8, root, comm_,
                              stream);
    });
  }

  void exchange(std::span<const Message> messages, const char* operation,
                const char* what) override {
    std::vector<Message> on_gpu, elsewhere;
    for (const Message& message : messages) {
      check(message.peer >= 0 && message.peer < size() && message.peer != rank(),
            "a message goes to another member");
      if (message.x.numel() > 0) (is_on_gpu(message.x) ? on_gpu : elsewhere).push_back(message);
    }
    if (!elsewhere.empty()) on_host([&] { host_->exchange(elsewhere, operation, what); });
    if (on_gpu.empty()) return;
    run(operation, what, true, [&](NcclStream stream) {
      NcclResult result = nccl().group_start();
      for (const Message& message : on_gpu) {
        if (result != NcclResult::kSuccess) break;
        const std::size_t bytes = bytes_of(message.x, message.x.numel());
        void* data = message.x.data_ptr();
        result = message.direction == Message::Direction::kSend
                     ? nccl().send(data, bytes, NcclType::kUint8, message.peer, comm_, stream)
                     : nccl().receive(data, bytes, NcclType::kUint8, message.peer, comm_, stream);
      }
      const NcclResult end = nccl().group_end();
      return result == NcclResult::kSuccess ? end : result;
    });
  }

  void barrier(const char* what) override {
    current_stream().synchronize();  // sync: a barrier is for what is in the stream too
    on_host([&] { host_->barrier(what); });
  }

  std::vector<std::string> all_gather(const std::string& bytes, const char* what) override {
    std::vector<std::string> all;
    on_host([&] { all = host_->all_gather(bytes, what); });
    return all;
  }

 private:
  static c10::Stream current_stream() {
    return c10::impl::VirtualGuardImpl(kDevice.type()).getStream(kDevice);
  }
  static void* at(const Tensor& x, const Range& range) {
    return static_cast<char*>(x.data_ptr()) + bytes_of(x, range.begin);
  }
  std::size_t own() const { return static_cast<std::size_t>(rank()); }

  /// It may be asked when the group is gone.
  std::function<std::string()> where(const char* what, const char* operation) const {
    return [what, operation, world_rank = connection_->config().rank, axis = axis_, own = rank(),
            size = size()] {
      return fmt::format("rank {}: {}: {} over {} ({} of {})", world_rank, what, operation,
                         name_of(axis), own, size);
    };
  }

  void require(NcclResult result, const char* what, const char* operation) const {
    if (!has_failed(result)) return;
    throw GroupError(fmt::format("{}: {}", where(what, operation)(), nccl().problem(result)));
  }

  /// One call for each member, as one operation.
  template <typename Fn>
  NcclResult together(const Fn& fn) const {
    NcclResult result = nccl().group_start();
    for (int member = 0; member < size() && result == NcclResult::kSuccess; ++member)
      result = fn(member);
    const NcclResult end = nccl().group_end();
    return result == NcclResult::kSuccess ? end : result;
  }

  template <typename Fn>
  void on_host(const Fn& fn) {
    connection_->watch().check();
    fn();
    connection_->watch().check();
  }

  /// `moves`: false where there is nothing to move, for every member.
  template <typename Fn>
  void run(const char* operation, const char* what, bool moves, const Fn& fn) {
    StreamWatch& watch = connection_->watch();
    watch.check();
    connection_->begin(what);
    if (!moves) return;
    const c10::impl::VirtualGuardImpl guard(kDevice.type());
    const NcclStream stream = guard.getStreamNativeHandle(guard.getStream(kDevice));
    const bool is_recorded = is_recording(stream);
    const auto ticket = watch.begin(where(what, operation), what);
    // The watch may abort from here on. It says why before it closes the gate.
    const NcclResult result = [&] {
      const CallGate::Pass pass(connection_->gate());
      return pass.is_open ? fn(stream) : NcclResult::kInvalidUsage;
    }();
    if (has_failed(result) || is_recorded) {
      watch.dropped(ticket);
      watch.check();  // an abort is what made the call fail
      require(result, what, operation);
    } else {
      watch.launched(ticket);
    }
  }

  std::shared_ptr<Connection> connection_;
  std::unique_ptr<RankGroup> host_;
  Axis axis_;
  NcclComm comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Mesh> make_nccl_mesh(const SocketMeshConfig& config, Rendezvous* rendezvous,
                                     const WrapGroup& wrap) {
  nccl();  // before anybody waits for anybody
  const auto connection = std::make_shared<Connection>(config);
  SocketMeshConfig host = config;
  host.on_begin = [connection](int64_t, const char* what) { connection->begin(what); };
  return make_socket_mesh(host, rendezvous, [&](std::unique_ptr<RankGroup> group, Axis axis) {
    std::unique_ptr<RankGroup> on_gpus =
        std::make_unique<NcclGroup>(connection, std::move(group), axis);
    return wrap ? wrap(std::move(on_gpus), axis) : std::move(on_gpus);
  });
}

}  // namespace slime::comm
