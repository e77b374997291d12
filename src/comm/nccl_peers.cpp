#include "comm/nccl_peers.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <thread>
#include <utility>

#include "comm/rank_group.h"
#include "core/error.h"

namespace slime::comm {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds limit)
      : end_(std::chrono::steady_clock::now() + limit) {}
  bool is_over() const { return std::chrono::steady_clock::now() > end_; }

 private:
  std::chrono::steady_clock::time_point end_;
};

void wait_a_little() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

}  // namespace

NcclPeers::NcclPeers(const NcclUniqueId& id, int rank, int size, std::chrono::milliseconds timeout)
    : timeout_(timeout) {
  NcclConfig config;
  config.blocking = 0;  // who waits for a peer that never comes could not be set free
  settle(nccl().comm_init_rank(&comm_, size, id, rank, &config), "meeting over NCCL");
}

NcclPeers::~NcclPeers() {
  if (comm_ != nullptr) nccl().comm_abort(comm_);
}

void NcclPeers::give_up(const std::string& why) {
  if (comm_ != nullptr) nccl().comm_abort(std::exchange(comm_, nullptr));
  throw GroupError(why);
}

void NcclPeers::settle(NcclResult result, const std::string& what) {
  const Deadline deadline(timeout_);
  while (result == NcclResult::kInProgress) {
    if (deadline.is_over())
      give_up(fmt::format("{}: not everybody came within {} s", what, timeout_.count() / 1000));
    wait_a_little();
    NcclResult state = NcclResult::kSuccess;
    const NcclResult asked = nccl().comm_get_async_error(comm_, &state);
    result = asked == NcclResult::kSuccess ? state : asked;
  }
  if (result != NcclResult::kSuccess) give_up(fmt::format("{}: {}", what, nccl().problem(result)));
}

void NcclPeers::broadcast(const Tensor& x, int root, const std::string& what) {
  check(x.is_cuda() && x.is_contiguous(), "what travels is on the GPU, and contiguous");
  if (comm_ == nullptr) throw GroupError(what + ": the peers are given up");
  const c10::impl::VirtualGuardImpl guard(kGpu.type());
  const c10::Stream stream = guard.getStream(kGpu);
  void* data = x.mutable_data_ptr();
  settle(nccl().broadcast(data, data, x.nbytes(), NcclType::kUint8, root, comm_,
                          guard.getStreamNativeHandle(stream)),
         what);
  c10::Event end(kGpu.type());
  end.record(stream);
  const Deadline deadline(timeout_);
  while (!end.query()) {
    NcclResult state = NcclResult::kSuccess;
    if (nccl().comm_get_async_error(comm_, &state) != NcclResult::kSuccess ||
        (state != NcclResult::kSuccess && state != NcclResult::kInProgress))
      give_up(fmt::format("{}: {}", what, nccl().problem(state)));
    if (deadline.is_over())
      give_up(fmt::format("{}: nothing came within {} s", what, timeout_.count() / 1000));
    wait_a_little();
  }
}

}  // namespace slime::comm
