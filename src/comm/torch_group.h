#pragma once

/// A rank of a torch.distributed group: how PyTorch trainers send weights to servers. c10d of LibTorch
/// speaks its protocol: a TCPStore at the trainer, where ranks find one another, and Gloo between them.
///
///   trainer (rank 0)   init_process_group(backend="gloo", init_method="tcp://HOST:PORT", rank=0, ...)
///                      broadcast(tensor, src=0)
///   here               group = join_torch_group({...}); group->broadcast(tensor)

#include <chrono>
#include <memory>
#include <string>

#include "core/tensor.h"

namespace slime::comm {

struct TorchGroupConfig {
  std::string address;  // of the store
  int port = 0;
  int rank = 0;
  int world_size = 0;
  std::string name;
  bool holds_store = false;                    // it is here, not at the trainer
  std::chrono::milliseconds timeout{300'000};  // of joining, and of each broadcast()
};

class TorchGroup {
 public:
  virtual ~TorchGroup() = default;

  /// Rank 0 sends, the others receive: contiguous, on the CPU, of one size and precision everywhere. Throws
  /// GroupError when rank 0 is gone or does not send in time; the group is of no use then.
  virtual void broadcast(const Tensor& tensor) = 0;
};

/// Returns when all ranks have come; they know one another by the names of
/// torch.distributed._new_process_group_helper(group_name=NAME) over a PrefixStore(NAME). Listens at the
/// address from which the store is reached. Throws GroupError.
std::unique_ptr<TorchGroup> join_torch_group(const TorchGroupConfig& config);

}  // namespace slime::comm
