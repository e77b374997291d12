#pragma once

/// StepRunner on a GPU: launches a step and returns while it runs.
///
/// Requests of a step that get one token (decode) are padded to one of a short list of batch sizes and
/// recorded: the first step of a size runs as it is, the second is recorded, and from then on they are
/// one copy of their numbers to the device and one launch. Prompts of the same step are launched behind
/// them, kernel by kernel, so that what a request draws does not depend on whether prompts run beside it
/// (docs/decisions/0130-prompts-beside-decode.md). Networks with indexers of sizes that have no kernels
/// record nothing, and take all rows of a step together. Everything is sampled on the device, whatever
/// its sampling extras.
///
/// Rows that verify drafts (docs/decisions/0163-drafts.md) are rows of decode, each a sequence of its own in the
/// pages of its request, in recordings apart from those without. Networks with indexers take such chunks as
/// they take prompts. Requests with penalties get no drafts: the device counts what each draws. Steps in training
/// arithmetic (docs/decisions/0168-training-arithmetic.md) are launched kernel by kernel, with all their rows together.
///
/// One class because all of its parts are what a launched step reads and writes, on its stream.
///
/// All work goes to one stream of the runner's own; weights that another stream changed must be
/// complete before launch().
///
/// Dimensions: T rows of the step, as launched; R sampled rows; H hidden, V vocabulary.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "engine/cache_groups.h"
#include "engine/gpu_attention.h"
#include "engine/gpu_expert_choices.h"
#include "engine/gpu_input_block.h"
#include "engine/gpu_prompt_scores.h"
#include "engine/gpu_row_extras.h"
#include "engine/step_runner.h"
#include "kernels/gpu/gpu.h"

namespace slime::engine {

class GpuRunner final : public StepRunner {
 public:
  GpuRunner(model::Network& network, const StepRunnerConfig& config);
  ~GpuRunner() override;

  void copy_page(PageId from, PageId to) override;
  void copy_state(StateId from, StateId to) override;
  bool launch(std::span<const Chunk> chunks) override;
  bool was_usual_launch() const override { return !has_prepared_; }
  std::vector<std::optional<kernels::SampledToken>> collect() override;
  std::vector<kernels::SampledToken> take_scores(std::size_t chunk) override;
  bool verifies_drafts() const override { return true; }
  bool verifies_drafts_of(const Request& request) const override;
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk) override;
  bool has_exact_steps() const override { return has_exact_steps_; }
  void copy_weights(const FreshWeights& fresh) override;
  void exchange_network(model::Network& network) override;
  double wait_for_weights() override;
  void reset() override;
  void release_memory() override;
  void resume_memory() override;
  void append_experts(const CachedRows& rows, std::vector<int16_t>& out) const override;
  at::ScalarType kv_dtype() const override { return keys_.scalar_type(); }

 private:
  /// What steps drew. Two host sides take turns, because the step before may not be collected yet.
  struct Results {
    Results(int64_t rows, at::Device device);
    Tensor on_device;   // int32 [3, rows]: tokens, log-probs as bits, numbers of kept ids
    Tensor on_host[2];  // int32, pinned
    c10::Event ready[2];
    int turn = 0;
  };
  struct Launched {
    /// Of the results; -1: draws none. Rows behind its drafts follow.
    std::vector<int64_t> row_of_chunk;
    std::vector<int64_t> drafts_of_chunk;
    std::vector<RowReport> reports;
    std::vector<ScoredChunk> scored;
    int turn = 0;  // which of the result blocks
  };
  /// Chunks of a step: those that are recorded, and the others.
  struct Parts {
    std::vector<Chunk> decode, prompts;
    std::vector<std::size_t> chunk_of;  // of the step, of each of both
    int64_t num_decode_rows = 0, num_prompt_rows = 0;
  };

  /// Tables have it in the place of pages that were given back; masked numbers are finite.
  void clear_spare_page();
  bool is_recordable(const Chunk& chunk) const;
  void forget_steps_of_other_adapters();
  Parts parts_of(std::span<const Chunk> chunks) const;
  /// States of requests that begin are those before the first token.
  void clear_states(std::span<const Chunk> chunks);
  int64_t padded_rows(int64_t rows) const;
  /// Hidden states of rows whose ids are resolved. `made_TYK`: where choices of experts go; undefined:
  /// nobody asks. `wanted_R`: TokenBatch's.
  Tensor forward(const GpuStepInputs& in, const Tensor& made_TYK, const Tensor& wanted_R = {},
                 std::span<const MediaRun> media = {});
  /// Sampled tokens of the rows, to results_ from `place` on.
  void draw(const GpuStepInputs& in, const Tensor& hidden_RH, int64_t place);
  /// The same of rows [begin, begin + hidden_RH.size(0)) of them.
  void draw_block(const GpuStepInputs& in, const Tensor& hidden_RH, int64_t begin, int64_t place);
  /// Launches the rows of decode; returns their choices of experts.
  Tensor launch_decode(GpuStepInputs in, int64_t rows);
  /// The others, which draw to results_ from `place` on; appends to `launched` what they score.
  Tensor launch_prompts(const Parts& parts, const GpuStepInputs& in, int64_t place,
                        Launched& launched);
  Tensor room_for_experts(int64_t rows) const;
  /// A step of so many rows of decode is replayed, from here on.
  bool is_recorded(int64_t rows, bool verifies_drafts) const;
  /// One of the recordings, or null.
  const kernels::GpuGraph* any_graph() const;

  kernels::Gpu& gpu_;
  model::Network* network_;
  const StepRunnerConfig config_;
  const bool has_exact_steps_;
  c10::Stream stream_;
  std::unique_ptr<kernels::GpuMemory> memory_;  // of keys_ to states_PX_
  // [layers of a page, pages + 1, K, 16, D]; the last page is where padding writes. Values are undefined
  // where they are a part of the keys.
  Tensor keys_, values_;
  // float32 [layers with an indexer, pages + 1, 16, D]; undefined: there are none.
  Tensor index_keys_;
  // float32: of requests, all layers' behind each other; undefined: layers keep none.
  Tensor states_PX_;
  GpuAttention attention_;
  GpuInputBlock decode_inputs_, prompt_inputs_;
  GpuRowExtras extras_;
  GpuPromptScores prompt_scores_;
  std::optional<GpuExpertChoices> experts_;  // where choices are recorded
  Results results_;
  std::deque<Launched> launched_;
  std::vector<int64_t> places_;      // in results_, of the tokens that the step launched last draws
  std::vector<ScoredChunk> scored_;  // of the step that was collected last
  int scored_turn_ = 0;
  std::vector<std::vector<kernels::SampledToken>> behind_drafts_;  // of the same, by chunk
  c10::Event copy_begins_, copy_ends_;  // of new weights, timed; of an exchange: together
  struct Recorded {
    GpuStepInputs inputs;                      // keeps the views alive
    Tensor made_TYK;                           // forward()'s
    std::unique_ptr<kernels::GpuGraph> graph;  // null: ran once, not recorded yet
  };
  /// By the network whose weights are read, padded rows, and whether some verify drafts.
  std::map<std::tuple<const model::Network*, int64_t, bool>, Recorded> recorded_;
  bool has_prepared_ = false;  // the step launched last is the first or the second of its recording
  int64_t adapter_changes_ = 0;  // model::Adapters::num_changes() when they were recorded
};

}  // namespace slime::engine
