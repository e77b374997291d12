#pragma once

/// StepRunner on the CPU: a step is done when launch() returns.
///
/// Dimensions: T tokens of the step, H hidden, V vocabulary.

#include <memory>
#include <optional>

#include "engine/draft_passes.h"
#include "engine/expert_pages.h"
#include "engine/paged_attention.h"
#include "engine/step_runner.h"

namespace slime::engine {

/// One class because a step's parts share the caches, and what it drew.
class ModelRunner final : public StepRunner {
 public:
  ModelRunner(model::Network& network, const StepRunnerConfig& config);

  void copy_page(PageId from, PageId to) override;
  void copy_state(StateId from, StateId to) override { states_.copy(from, to); }
  bool launch(std::span<const Chunk> chunks) override;
  std::vector<std::optional<kernels::SampledToken>> collect() override;
  std::vector<kernels::SampledToken> take_scores(std::size_t chunk) override;
  bool verifies_drafts() const override { return true; }
  bool has_exact_steps() const override { return true; }  // there is one arithmetic
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk) override;
  bool has_draft_layer() const override {
    return draft_model_ != nullptr || network_->num_draft_layers() > 0;
  }
  std::vector<Draft> take_foretold(std::size_t chunk) override;
  void copy_weights(const FreshWeights& fresh) override;
  void exchange_network(model::Network& network) override {
    network_ = &network;
    copy_seconds_ = 0;
  }
  double wait_for_weights() override { return copy_seconds_; }
  void reset() override { outcome_ = {}; }
  void release_memory() override;
  void resume_memory() override {}  // comes back as it is written
  at::ScalarType kv_dtype() const override { return cache_.dtype(); }
  void append_experts(const CachedRows& rows, std::vector<int16_t>& out) const override;

 private:
  /// Of the launched step, by chunk.
  struct Outcome {
    std::vector<std::optional<kernels::SampledToken>> sampled;
    std::vector<std::vector<kernels::SampledToken>> behind_drafts;
    std::vector<std::vector<kernels::SampledToken>> scores;  // empty: none scores
    std::vector<std::vector<Draft>> foretold;
  };

  /// Of the draft model's layer: the same pages in memory of their own, since its heads are others.
  struct DraftCache {
    DraftCache(const model::Eagle3& draft, at::ScalarType type, int64_t num_pages)
        : cache(draft.blocks(), type, num_pages),
          states(draft.blocks(), 0),
          attention(cache, states) {}
    PagedKvCache cache;
    StateCache states;  // it has none
    PagedAttention attention;
  };

  static std::unique_ptr<DraftCache> draft_cache_of(const StepRunnerConfig& config);
  bool chooses_adapters() const;
  void record_experts(std::span<const Chunk> chunks, const Tensor& made_TYK);
  /// Hidden states of the wanted rows (TokenBatch).
  Tensor forward(std::span<const Chunk> chunks, const Tensor& wanted_R,
                 model::HiddenCapture* captured);
  /// Drafts behind what the step drew, from hidden states of all its rows.
  std::vector<std::vector<Draft>> foretold(std::span<const Chunk> chunks, const Tensor& hidden_TH,
                                           const model::HiddenCapture& captured);
  /// Tokens of the chunks that draw some, from the hidden states of their rows that do.
  void draw(std::span<const Chunk> chunks, const Tensor& hidden_RH);
  /// Their ids by chunk, that of the first draft's place first.
  std::vector<std::vector<TokenId>> drawn_ids(std::span<const Chunk> chunks) const;
  /// Of a chunk whose first row is `first_row` of the step.
  std::vector<kernels::SampledToken> score(const Chunk& chunk, const Tensor& hidden_TH,
                                           int64_t first_row);

  model::Network* network_;
  PagedKvCache cache_;
  StateCache states_;
  PagedAttention attention_;
  std::optional<ExpertPages> experts_;
  const int64_t queries_per_head_;
  const std::shared_ptr<const model::Eagle3> draft_model_;  // null: there is none
  const std::unique_ptr<DraftCache> draft_cache_;           // of it
  DraftPasses draft_passes_;
  const bool computes_all_rows_;
  const std::vector<TokenId> eos_ids_;
  Outcome outcome_;
  double copy_seconds_ = 0;
};

}  // namespace slime::engine
