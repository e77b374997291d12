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

/// Report of a launched row, and its place: its best tokens and kept ids, and, where a constraint masks it, how
/// much of the distribution that leaves.
struct RowReport {
  int64_t chunk = 0;       // of the step
  int64_t draw = 0;        // of those of the chunk: DrawnRow::draw
  int64_t word = -1;       // in the host block of the step's turn; -1: only masses are reported
  int64_t num_listed = 0;  // best tokens that the kernel lists: all where some are asked for by id
  int64_t mass = -1;       // the first one in the host block of masses; -1: none are reported
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
  float free_log_prob(const RowReport& report, int turn, float log_prob) const;
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
  Tensor masses_[2];  // as reports_: ChunkMasses
};

/// Makes `block` locked host memory for at least so many numbers; what it had is lost where it grows.
void grow_locked(Tensor& block, int64_t count, at::ScalarType type);

/// A report of `num_top` best tokens.
std::vector<std::pair<float, TokenId>> read_top(const uint32_t* words, int64_t num_top);

/// Of a token whose list of best ones has all: those that are asked for, and the list cut to its first
/// `num_top`.
void pick_asked(kernels::SampledToken& token, std::span<const TokenId> asked_ids, int64_t num_top);

/// Reports the best tokens of each row at temperature 1, to where its extras say: uint8
/// [R, sizeof(RowExtras)]. Returns int32 [R]: kernels::kHandedOver for rows whose logits are there instead.
Tensor report_best_tokens(const kernels::EngineKernels& gpu, const Tensor& logits_RV,
                          const Tensor& extras_R);

/// The best tokens of each row at temperature 1. Waits for the GPU.
std::vector<std::vector<std::pair<float, TokenId>>> best_tokens(const kernels::EngineKernels& gpu,
                                                                const Tensor& logits_PV,
                                                                int64_t num_top);

}  // namespace slime::engine
