#pragma once

/// Log-probs of prompt tokens in a step on a GPU: of all its chunks together, in blocks of rows that keep
/// the GPU busy, copied to the host behind the step while the next one runs.
///
/// Per step: plan() before its forward pass, compute() behind it, read() once it is collected. Two steps
/// may be in flight; each has a turn. Nobody waits, except for lists of best tokens that are too long to
/// be sorted on the device.
///
/// Dimensions: T rows of the step, H hidden, V vocabulary, P scored positions.

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "engine/scheduler.h"
#include "engine/step_block.h"
#include "kernels/adapters.h"
#include "kernels/cpu/sample.h"
#include "kernels/gpu/gpu.h"
#include "model/network.h"

namespace slime::engine {

/// Scored rows of a chunk of a launched step.
struct ScoredChunk {
  std::size_t chunk = 0;  // of those given to plan()
  std::vector<TokenId> targets;
  int64_t first = 0;  // of the step's scored positions
  int64_t num_top =
      0;  // best tokens of each position, at most V: all where some are asked for by id
  int64_t num_told = 0;  // of those
  std::vector<TokenId> asked_ids;
  int64_t word =
      -1;  // where the reports of its best tokens begin in the block of the turn; -1: none
  std::vector<std::vector<std::pair<float, TokenId>>>
      top;  // read already, where there are no reports
};

class GpuPromptScores {
 public:
  /// `most_rows`: of a step.
  GpuPromptScores(const kernels::Gpu& gpu, model::Network& network, int64_t most_rows);

  /// Chunks whose rows begin at row 0 of the step's hidden states; sends what compute() needs on the
  /// current stream. Empty: none of them scores.
  std::vector<ScoredChunk> plan(std::span<const Chunk> chunks, int turn);

  /// On the current stream; `scored` as plan() gave it.
  void compute(const model::Network& network, const Tensor& hidden_TH, int turn,
               std::vector<ScoredChunk>& scored);

  /// After the step of this turn: what a chunk scored.
  std::vector<kernels::SampledToken> read(ScoredChunk scored, int turn) const;

 private:
  void read_long_lists(const Tensor& logits_BV, int64_t begin,
                       std::vector<ScoredChunk>& scored) const;

  const kernels::Gpu& gpu_;
  const int64_t vocab_size_, most_rows_;
  const int64_t num_adapters_;  // that rows choose among; 0: they do not
  const at::Device device_;
  std::optional<StepBlock> block_;  // none before the first step that scores
  // Of the step that was planned last, over the block.
  Tensor row_P_, target_P_;  // int64
  std::vector<kernels::AdapterTiles>
      adapters_;         // of each block of rows; none where they do not choose
  Tensor extras_P_;      // uint8 [P, sizeof(RowExtras)]; undefined: no reports
  Tensor log_probs_[2];  // float32, on the host, locked; as large as a step has needed
  Tensor reports_[2];    // int32, the same
};

}  // namespace slime::engine
