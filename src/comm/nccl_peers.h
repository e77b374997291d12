#pragma once

/// An NCCL communicator of processes that are not ranks of this run: who they are is agreed elsewhere
/// (comm/torch_group.h), and all that travels is waited for.

#include <chrono>
#include <string>

#include "comm/nccl_library.h"
#include "core/tensor.h"

namespace slime::comm {

class NcclPeers final {
 public:
  /// Returns when all have come. The GPU is open. Throws GroupError after `timeout`, which also bounds each
  /// operation.
  NcclPeers(const NcclUniqueId& id, int rank, int size, std::chrono::milliseconds timeout);
  /// Waits for nobody.
  ~NcclPeers();
  NcclPeers(const NcclPeers&) = delete;
  NcclPeers& operator=(const NcclPeers&) = delete;

  /// Contiguous, on the GPU; it is there when this returns. `what` begins a GroupError's message; after one
  /// the communicator is of no use.
  void broadcast(const Tensor& x, int root, const std::string& what);

 private:
  /// Until NCCL has carried out what it began.
  void settle(NcclResult result, const std::string& what);
  [[noreturn]] void give_up(const std::string& why);

  const std::chrono::milliseconds timeout_;
  NcclComm comm_ = nullptr;
};

}  // namespace slime::comm
