#pragma once

/// Input block of a step's kernels: built from its chunks on the host, sent in one copy.
///
/// Dimensions: T rows of the step, as launched; S sequences; R sampled rows.

#include <span>
#include <vector>

#include "core/tensor.h"
#include "engine/scheduler.h"
#include "engine/step_block.h"
#include "engine/step_runner.h"
#include "engine/step_sequences.h"
#include "kernels/adapters.h"
#include "kernels/gpu/decode_units.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/paged_units.h"
#include "model/network.h"

namespace slime::engine {

/// Tensors over the device's block.
struct GpuStepInputs {
  Tensor ids_T;           // int64
  Tensor rotary_row_T;    // int64; how many keys a row sees: batch.index_T
  Tensor sampled_rows_R;  // int64, may be none; undefined: all rows, in order
  kernels::PagedBatch batch;
  /// Of groups of layers with a window (engine/cache_groups.h): other slots, pages and units of decode.
  std::vector<kernels::PagedBatch> window_batches;
  std::vector<kernels::PagedSpan> spans;  // of the sequences, on the host, without padding
  bool is_decode = false;                 // a row of each sequence, and rows of padding
  bool verifies_drafts = false;           // with it: rows of a request see each other's keys
  StepArithmetic arithmetic = StepArithmetic::kFast;
  kernels::SampleRows sampling;
  kernels::AdapterTiles adapters;  // undefined: all rows take the network's adapter, or none
  kernels::AdapterTiles sampled_adapters;  // the same of the sampled rows
};

class GpuInputBlock {
 public:
  /// The last page, behind the `config.num_pages` of the pool, is where padding writes.
  GpuInputBlock(const kernels::Gpu& gpu, model::Network& network, const StepRunnerConfig& config,
                at::Device device);

  /// Fills the block, sends it on the current stream and describes it. `rows`: T, at least the
  /// chunks' tokens; more are padding. `is_decode`: each chunk is one token that draws the next, or with drafts
  /// that are verified row by row. Steps in training arithmetic are neither decode nor padded.
  /// The same number of rows of decode gives the same places in the block. `extras`: of the rows
  /// that draw; empty where none has one. `places`: where the step before put the tokens that it drew
  /// (Request::sampled_row counts these). Without `describes`, tensors of what it returns are undefined
  /// (StepBlock::begin).
  GpuStepInputs fill(std::span<const Chunk> chunks, std::span<const kernels::RowExtras> extras,
                     std::span<const int64_t> places, int64_t rows, bool is_decode, bool describes);

 private:
  void fill_attention(std::span<const StepSequence> sequences, std::span<const int64_t> places,
                      int64_t rows, bool is_decode, GpuStepInputs& in);
  void fill_units(std::span<const StepSequence> sequences, int64_t rows, bool is_decode,
                  GpuStepInputs& in);
  void add_exact(std::span<const StepSequence> sequences, GpuStepInputs& in);
  /// Of sequences with one row in groups whose pages are shared in the same places, `table_pages` behind
  /// one another.
  void add_decode(const kernels::DecodePlan& plan, int64_t launched, int64_t table_pages,
                  std::span<kernels::PagedBatch> batches);
  void plan_tiles(std::span<const kernels::PagedSpan> spans, int64_t rows, int64_t launched,
                  GpuStepInputs& in);
  void add_tiles(const kernels::UnitPlan& plan, int64_t rows, GpuStepInputs& in,
                 kernels::TiledLayers layers = kernels::TiledLayers::kAll);
  void add_packed(std::span<const StepSequence> sequences, kernels::PackedPlan plan,
                  GpuStepInputs& in);
  void fill_sampling(std::span<const Chunk> chunks, std::span<const kernels::RowExtras> extras,
                     int64_t rows, bool is_decode, GpuStepInputs& in);
  void fill_adapters(std::span<const Chunk> chunks, int64_t rows, GpuStepInputs& in);

  const int64_t spare_page_;
  const int64_t num_window_groups_;
  const bool is_latent_;  // latent attention
  const kernels::DecodeOptions decode_;
  const bool has_decode_;        // otherwise rows of decode are tiles like prompts, or nothing
  const bool has_windows_;       // of some layers
  const bool has_only_windows_;  // of all
  const kernels::KeySplit splits_keys_;  // of layers without
  const bool has_packed_;                // long prompts go to packed attention
  const bool has_states_;                // layers keep one of each sequence
  const int64_t num_adapters_;           // that rows choose among; 0: they do not
  StepBlock block_;
};

}  // namespace slime::engine
