#pragma once

/// Pipeline schedule: the order in which stages compute forward and backward passes of micro-batches, and the
/// messages on the way between: pure, known to every rank.
///
/// Each stage has `chunks` ranges of layers (model/pipeline_layers.h); range i of all is chunk i / stages
/// of stage i % stages. A stage holds no more passes than it has to (1F1B; arXiv 2104.04473, sections 2.2
/// and 2.3): stage s lets stages - s of them begin before the first comes back, with several chunks
/// enough of them that no stage waits for it.
///
/// Time is ticks: in one of them a stage computes one pass or none, and behind it all messages that
/// the tick made travel at once. So both ends of a message meet in the same tick, whatever the order
/// of the passes, and nobody waits for somebody who waits.
///
///   2 stages, 3 micro-batches     tick     0   1   2   3   4   5   6   7
///                                 stage 0  F0  F1      B0  F2  B1      B2
///                                 stage 1      F0  B0  F1  B1  F2  B2

#include <cstdint>
#include <optional>
#include <vector>

namespace slime::train {

struct PipelineShape {
  int stages = 1;
  int chunks = 1;
};

enum class Direction { kForward, kBackward };

/// The pass of one micro-batch through one range of layers.
struct PipelineStep {
  Direction direction = Direction::kForward;
  int64_t micro_batch = 0;
  int chunk = 0;
  bool operator==(const PipelineStep&) const = default;
};

/// What a step reads that another stage has made: the stream of the range before it, or the gradient
/// of the one behind it.
struct Transfer {
  bool sends = false;
  int peer = 0;       // stage
  PipelineStep step;  // of the receiver: the one that reads it
  PipelineStep from;  // of the sender: the one that made it
  bool operator==(const Transfer&) const = default;
};

struct Tick {
  std::optional<PipelineStep> step;
  std::vector<Transfer> transfers;  // behind the step
};

/// The ticks of one stage; all stages have as many. `has_backward`: of each micro-batch.
std::vector<Tick> pipeline_ticks(const PipelineShape& shape, int stage,
                                 const std::vector<bool>& has_backward);

}  // namespace slime::train
