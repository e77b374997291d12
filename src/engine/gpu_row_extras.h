#pragma once

/// Per-row sampling extras of a GPU step (kernels/gpu/row_extras.h): built from the requests before
/// the step, read after it.
///
/// A request's penalties, bias and forbidden ids are put on the device once, when it first needs
/// them, and stay with it (Request::logit_changes). Reports go to locked host memory, two blocks
/// in turn, because two steps may be in flight. Masks of a constraint go with each step.

#include <span>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "engine/scheduler.h"
#include "kernels/cpu/sample.h"
#include "kernels/gpu/engine_kernels.h"

namespace slime::engine {

/// What a launched row reports, and where.
struct RowReport {
  int64_t chunk = 0;  // of the step
  int64_t word = 0;   // in the host block of the step's turn
  kernels::SampleOptions options;
};

class GpuRowExtras {
 public:
  GpuRowExtras(std::vector<TokenId> eos_ids, int64_t vocab_size, at::Device device);

  /// Of the rows that the chunks draw, in order; empty where none has one. The step before the one
  /// before is collected, whose turn it was. Copies go to the current stream.
  std::vector<kernels::RowExtras> plan(std::span<const Chunk> chunks, int turn,
                                       std::vector<RowReport>& reports);

  /// After the step: completes a token whose id and log-prob are there.
  void read(const RowReport& report, int turn, int32_t num_kept,
            kernels::SampledToken& token) const;

 private:
  using MaskedRows = std::vector<std::pair<std::size_t, const Request*>>;
  Tensor make_changes(const Request& request) const;
  /// Puts the masks of rows on the device, for the step of this turn.
  void send_masks(const MaskedRows& masked, int turn, std::vector<kernels::RowExtras>& extras);

  const std::vector<TokenId> eos_ids_;
  const int64_t vocab_size_;
  const at::Device device_;
  Tensor reports_[2];  // int32, on the host, locked; as large as a step has needed
  struct Masks {
    Tensor on_host, on_device;  // int32, the former locked; as large as a step has needed
  };
  Masks masks_[2];
};

/// The best tokens of each row at temperature 1. Waits for the GPU.
std::vector<std::vector<std::pair<float, TokenId>>> best_tokens(const kernels::EngineKernels& gpu,
                                                                const Tensor& logits_PV,
                                                                int64_t num_top);

}  // namespace slime::engine
