#pragma once

/// An engine of several ranks: each holds slices of the network and its heads' keys and values, and
/// computes its part of each step (tensor parallelism). Rank 0 has the scheduler, the requests and their
/// callers; what the others, its followers, are to do it tells them here, in frames over a connection
/// each (net/frame_channel.h). Messages inside a step go through the mesh (comm/mesh.h), on which ranks
/// wait with a deadline; on these connections a follower waits as long as the engine is idle.
///
/// What is told is what a StepRunner is told, so the ranks' runners have the same pages in the same
/// places and launch the same steps in the same order.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "net/frame_channel.h"

namespace slime::engine {

enum class RankOrder : uint32_t {
  kOpen = 1,     // StepRunnerConfig: comes first
  kStep,         // a step's chunks (engine/ranks/mirrored_step.h): launch it
  kCollect,      // collect the oldest launched step; the tokens that rank 0 drew in it
  kCopyPage,     // from, to
  kCopyState,    // from, to
  kWeights,      // WeightPiece (engine/remote/frames.h) of the whole model, into the second network
  kLoad,         // a checkpoint's directory, read into the second network; answered
  kChange,       // the second network begins with the weights that run; answered
  kConstants,    // Weights::flat_constants() of the second network
  kCopyWeights,  // the second network's weights over those that run
  kExchange,     // compute with the second network; Weights::flat_constants() of it
  kChecksums,    // of the weights that run, over the mesh; true: they become random numbers first
  kForgetLaunched,
  kRelease,  // the memory of keys and values; all ranks have done so when rank 0 goes on
  kResume,
  kLoadAdapter,     // a directory of PEFT: one adapter that all rows take; answered
  kOpenAdapters,    // so many slots of adapters that rows choose among
  kReadAdapter,     // a directory of PEFT, for the kChangeAdapters that follows; answered
  kChangeAdapters,  // SlotChange (engine/adapter_slots.h)
  kAnswer,          // to rank 0: why it failed; empty: it did not
};

/// Rank 0's ends of the connections.
class Followers final {
 public:
  /// Owns the descriptors, connected stream sockets: of ranks 1, 2, ...
  explicit Followers(const std::vector<int>& descriptors);

  /// The same to all. Any thread. Throws comm::GroupError when one is gone or does not listen.
  void tell(RankOrder order, std::string_view payload);
  /// Tells, and waits for everybody's answer: the first failure, with whose it is. Any thread.
  Expected<void> ask(RankOrder order, std::string_view payload);

 private:
  std::mutex asking_;  // the answers are of one order
  std::vector<std::unique_ptr<net::FrameChannel>> channels_;
};

}  // namespace slime::engine
