#pragma once

/// Collectives of small tensors over the GPUs of several processes of one host, through memory that each
/// writes to directly (kernels/gpu/peer_memory.h). Where decode adds up rows of the residual stream, a
/// general library takes longer to begin than the bytes take on their way.
///
/// One kernel a sum, recordable: a rank writes what it has into the other ranks' memory, waits for what
/// they write into its own, and adds in the order of the ranks, so that all have the same bits. What
/// waits is a kernel. It gives up at a deadline, or when the host says so; then the results mean
/// nothing, and problem() says what happened.
///
/// As RankCollectives: all ranks make the same calls in the same order, on one stream.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/rank_collectives.h"

namespace slime::kernels {

struct PeerCollectivesConfig {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds deadline{600'000};  // of the wait within one kernel
  /// Everybody's bytes in the order of the ranks: how they meet.
  std::function<std::vector<std::string>(const std::string&)> all_gather;
};

class PeerCollectives : public RankCollectives {
 public:
  /// True for a contiguous tensor of a size and precision that sum_() takes.
  virtual bool takes(const Tensor& x) const = 0;
  /// Which of the two ways of sending is used up to here, and by which beyond (docs/parallel.md): for
  /// measuring them. All ranks the same.
  virtual void set_flagged_words_limit(int64_t bytes) = 0;
  /// Why results since the beginning mean nothing; empty: they do. Of kernels that have ended.
  virtual std::string problem() const = 0;
  /// Sets kernels free that wait. Any thread.
  virtual void abort() = 0;
};

/// Implemented by a kernels::Gpu that has them.
class PeerDevice {
 public:
  virtual ~PeerDevice() = default;
  /// As make_peer_collectives().
  virtual std::unique_ptr<PeerCollectives> make_peers(const PeerCollectivesConfig& config) = 0;
};

/// Of the open GPU (kernels/gpu/gpu.h); called by all ranks. Throws std::runtime_error on all of them,
/// with the reason, where one cannot reach the memory of the others.
std::unique_ptr<PeerCollectives> make_peer_collectives(const PeerCollectivesConfig& config);

}  // namespace slime::kernels
