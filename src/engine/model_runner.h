#pragma once

/// StepRunner on the CPU: a step is done when launch() returns.
///
/// Dimensions: T tokens of the step, H hidden, V vocabulary.

#include <optional>

#include "engine/expert_pages.h"
#include "engine/paged_attention.h"
#include "engine/step_runner.h"

namespace slime::engine {

class ModelRunner final : public StepRunner {
 public:
  ModelRunner(model::Network& network, const StepRunnerConfig& config);

  void copy_page(PageId from, PageId to) override;
  void copy_state(StateId from, StateId to) override { states_.copy(from, to); }
  bool launch(std::span<const Chunk> chunks) override;
  std::vector<std::optional<kernels::SampledToken>> collect() override;
  std::vector<kernels::SampledToken> take_scores(std::size_t chunk) override;
  bool verifies_drafts() const override { return true; }
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk) override;
  void copy_weights(const FreshWeights& fresh) override;
  void exchange_network(model::Network& network) override {
    network_ = &network;
    copy_seconds_ = 0;
  }
  double wait_for_weights() override { return copy_seconds_; }
  void reset() override {
    sampled_.clear();
    behind_drafts_.clear();
    scores_.clear();
  }
  void release_memory() override;
  void resume_memory() override {}  // comes back as it is written
  at::ScalarType kv_dtype() const override { return cache_.dtype(); }
  void append_experts(const CachedRows& rows, std::vector<int16_t>& out) const override;

 private:
  bool chooses_adapters() const;
  void record_experts(std::span<const Chunk> chunks, const Tensor& made_TYK);
  /// Hidden states of the wanted rows (TokenBatch).
  Tensor forward(std::span<const Chunk> chunks, const Tensor& wanted_R);
  /// Of the step, by group of layers. `sequences`: its rows, without pages.
  std::vector<kernels::PagedPlan> plans_of(std::span<const Chunk> chunks,
                                           std::vector<kernels::PagedSequence> sequences) const;
  /// Of a chunk whose first row is `first_row` of the step.
  std::vector<kernels::SampledToken> score(const Chunk& chunk, const Tensor& hidden_TH,
                                           int64_t first_row);

  model::Network* network_;
  PagedKvCache cache_;
  StateCache states_;
  PagedAttention attention_;
  std::optional<ExpertPages> experts_;
  const int64_t queries_per_head_;
  const bool computes_all_rows_;
  const std::vector<TokenId> eos_ids_;
  std::vector<std::optional<kernels::SampledToken>> sampled_;      // of the launched step
  std::vector<std::vector<kernels::SampledToken>> behind_drafts_;  // by chunk
  std::vector<std::vector<kernels::SampledToken>> scores_;         // by chunk; empty: none scores
  double copy_seconds_ = 0;
};

}  // namespace slime::engine
