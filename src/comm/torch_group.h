#pragma once

/// Ranks of a torch.distributed group: how PyTorch trainers send weights to servers. c10d of LibTorch
/// speaks its protocol: a TCPStore at the trainer, where ranks find one another, and Gloo or NCCL between
/// them.
///
///   trainer (rank 0)   init_process_group(backend="gloo", init_method="tcp://HOST:PORT", rank=0, ...)
///                      broadcast(tensor, src=0)
///   here               group = join_torch_group({...}); group->broadcast(tensor)

#include <chrono>
#include <memory>
#include <string>

#include "core/tensor.h"

namespace slime::comm {

enum class TorchBackend { kGloo, kNccl };

struct TorchGroupConfig {
  std::string address;  // of the store
  int port = 0;
  int rank = 0;
  /// Ranks from `rank` on that are all here: of an engine whose trainer counts each of its devices. With
  /// NCCL one.
  int num_ranks = 1;
  int world_size = 0;
  std::string name;
  TorchBackend backend = TorchBackend::kGloo;
  bool holds_store = false;                    // it is here, not at the trainer
  std::chrono::milliseconds timeout{300'000};  // of joining, and of each broadcast()
};

class TorchGroup {
 public:
  virtual ~TorchGroup() = default;

  /// Where tensors are: the CPU, or the GPU of this process.
  virtual at::Device device() const = 0;
  /// Rank 0 sends, the others receive: contiguous, on device(), of one size and precision everywhere. The
  /// tensor is there when it returns. Throws GroupError when rank 0 is gone or does not send in time; the
  /// group is of no use then.
  virtual void broadcast(const Tensor& tensor) = 0;
};

/// With Gloo it returns when all ranks have come, with NCCL when the store has: as in PyTorch, ranks meet
/// at the first broadcast. They know one another by the names of
/// torch.distributed._new_process_group_helper(group_name=NAME) over a PrefixStore(NAME). Gloo listens at
/// the address from which the store is reached. Throws GroupError, and ConfigError without NCCL.
std::unique_ptr<TorchGroup> join_torch_group(const TorchGroupConfig& config);

}  // namespace slime::comm
