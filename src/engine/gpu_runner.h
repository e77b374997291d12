#pragma once

/// StepRunner on a GPU: launches a step and returns while it runs.
///
/// Steps in which every request gets one token (decode) are padded to one of a short list of batch
/// sizes and recorded: the first step of a size runs as it is, the second is recorded, and from
/// then on a step is one copy of its numbers to the device and one launch. Other steps (prompts,
/// rows that the host draws) are launched kernel by kernel.
///
/// All work goes to one stream of the runner's own; weights that another stream changed must be
/// complete before launch().
///
/// Dimensions: T rows of the step, as launched; S sequences; R drawn rows; H hidden, V vocabulary.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <map>
#include <span>

#include "engine/step_block.h"
#include "engine/step_runner.h"
#include "kernels/gpu/decode_units.h"
#include "kernels/gpu/gpu.h"

namespace slime::engine {

/// Keys and values in pages, on the device.
class GpuAttention final : public model::Attention {
 public:
  /// keys and values: [layers, pages, K, 16, D].
  GpuAttention(const kernels::Gpu& gpu, const Tensor& keys, const Tensor& values);

  void begin_step(const kernels::PagedBatch& batch) { batch_ = batch; }
  Tensor attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& positions_T) override;
  const kernels::BlockChains* chains() const override { return chains_; }

 private:
  const kernels::Gpu& gpu_;
  const kernels::BlockChains* chains_;
  std::vector<Tensor> keys_, values_;  // per layer
  kernels::PagedBatch batch_;
};

class GpuRunner final : public StepRunner {
 public:
  GpuRunner(model::Network& network, const StepRunnerConfig& config);
  ~GpuRunner() override;

  /// What one page takes over all layers.
  static int64_t page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype);

  void copy_page(PageId from, PageId to) override;
  bool launch(std::span<const Chunk> chunks) override;
  std::vector<std::optional<kernels::SampledToken>> collect() override;
  void reset() override;
  void release_memory() override;
  void resume_memory() override { memory_->map(); }
  at::ScalarType kv_dtype() const override { return keys_.scalar_type(); }

 private:
  /// What the kernels of a step read, as tensors over the device's block.
  struct Inputs {
    Tensor ids_T;         // int64
    Tensor positions_T;   // int64
    Tensor drawn_rows_R;  // int64; undefined: all rows, in order
    kernels::PagedBatch batch;
    kernels::SampleRows sampling;
  };
  struct Launched {
    std::vector<int64_t> row_of_chunk;                 // among the drawn rows; -1: draws none
    std::map<int64_t, kernels::SampledToken> by_host;  // rows that the host drew
    int turn = 0;                                      // which of the result blocks
    bool is_done = false;                              // results are on the host already
  };

  bool is_recordable(std::span<const Chunk> chunks) const;
  int64_t padded_rows(int64_t rows) const;
  /// Fills the block and describes it. `rows`: T, at least the chunks' tokens; more are padding.
  Inputs fill(std::span<const Chunk> chunks, int64_t rows, bool is_decode);
  void fill_attention(std::span<const Chunk> chunks, int64_t rows, bool is_decode, Inputs& in);
  void fill_units(std::span<const Chunk> chunks, int64_t rows, bool is_decode, Inputs& in);
  void fill_sampling(std::span<const Chunk> chunks, int64_t rows, bool is_decode, Inputs& in);
  /// Hidden states of the step, and from them the drawn tokens in results_.
  Tensor forward(const Inputs& in);
  Tensor draw(const Inputs& in, const Tensor& hidden_TH);
  void draw_on_host(std::span<const Chunk> chunks, const Tensor& logits_RV, Launched& launched);
  std::vector<kernels::SampledToken> score_rows(const Tensor& hidden_PH,
                                                std::span<const TokenId> targets, int64_t num_top);
  void send_results(int turn);
  /// One of the recordings, or null.
  const kernels::GpuGraph* any_graph() const;

  kernels::Gpu& gpu_;
  model::Network& network_;
  const StepRunnerConfig config_;
  const kernels::DecodeOptions decode_;
  const bool has_decode_;  // otherwise rows of decode are tiles like prompts
  c10::Stream stream_;
  std::unique_ptr<kernels::GpuMemory> memory_;  // of keys_ and values_
  Tensor keys_, values_;  // [layers, pages + 1, K, 16, D]; the last page is where padding writes
  GpuAttention attention_;
  StepBlock block_;
  Tensor results_;          // int32 [2, rows]: tokens, and log-probs as bits
  Tensor host_results_[2];  // int32, pinned
  c10::Event ready_[2];
  int turn_ = 0;
  std::deque<Launched> launched_;
  struct Recorded {
    Inputs inputs;                             // keeps the views alive
    std::unique_ptr<kernels::GpuGraph> graph;  // null: ran once, not recorded yet
  };
  std::map<int64_t, Recorded> recorded_;  // by padded rows
};

}  // namespace slime::engine
