#pragma once

/// A StepRunner of a CPU whose fast steps are wrong: a share of the tokens that they draw are others, and the keys
/// and values that they write are those of other tokens. What else they draw is right, so that the share of tokens
/// that a step in training arithmetic redraws is known.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/random.h"
#include "engine/step_runner.h"

namespace slime::testing {

struct Perturbation {
  double share = 0;  // of the tokens
  /// A mistake: steps in training arithmetic take drafts for what they draw themselves.
  bool trusts_drafts = false;
  // By the steps in training arithmetic of all runners with this perturbation.
  int64_t num_compared = 0;
  int64_t num_redrawn = 0;
};

class PerturbedRunner final : public engine::StepRunner {
 public:
  /// `perturbation` outlives the object.
  PerturbedRunner(model::Network& network, const engine::StepRunnerConfig& config,
                  Perturbation& perturbation)
      : own_(engine::make_step_runner(network, config)),
        perturbation_(perturbation),
        vocab_size_(static_cast<TokenId>(network.config().vocab_size)) {}

  void copy_page(engine::PageId from, engine::PageId to) override { own_->copy_page(from, to); }
  bool has_exact_steps() const override { return own_->has_exact_steps(); }
  bool launch(std::span<const engine::Chunk> chunks) override {
    chunks_.assign(chunks.begin(), chunks.end());
    is_fast_ = chunks.front().is_tentative;
    for (const engine::Chunk& chunk : chunks) {
      EXPECT_EQ(chunk.is_tentative, is_fast_);
      EXPECT_EQ(chunk.arithmetic == engine::StepArithmetic::kTraining, !is_fast_);
    }
    drafts_.clear();
    if (is_fast_) return launch_fast();
    for (const engine::Chunk& chunk : chunks) {
      count(chunk);
      drafts_.emplace_back(chunk.request->tokens.end() - chunk.num_drafts,
                           chunk.request->tokens.end());
    }
    return own_->launch(chunks);
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    if (is_fast_) return std::move(drawn_);
    auto drawn = own_->collect();
    for (std::size_t i = 0; perturbation_.trusts_drafts && i < drawn.size(); ++i)
      if (!drafts_[i].empty()) drawn[i]->id = drafts_[i].front();
    return drawn;
  }
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk) override {
    std::vector<kernels::SampledToken> behind = own_->take_behind_drafts(chunk);
    for (std::size_t i = 0; perturbation_.trusts_drafts && i + 1 < behind.size(); ++i)
      behind[i].id = drafts_[chunk][i + 1];
    return behind;
  }
  std::vector<kernels::SampledToken> take_scores(std::size_t chunk) override {
    return own_->take_scores(chunk);
  }
  void copy_weights(const engine::FreshWeights& fresh) override { own_->copy_weights(fresh); }
  void exchange_network(model::Network& network) override { own_->exchange_network(network); }
  double wait_for_weights() override { return own_->wait_for_weights(); }
  void reset() override { own_->reset(); }
  void release_memory() override { own_->release_memory(); }
  void resume_memory() override { own_->resume_memory(); }
  at::ScalarType kv_dtype() const override { return own_->kv_dtype(); }

 private:
  /// By a random number of the request and the token's position alone.
  bool is_planted(const engine::Request& request, int64_t position) const {
    constexpr uint64_t kApart = 0x706C616E746564;
    return uniform(request.seed ^ kApart, request.stream, static_cast<uint64_t>(position)) <
           perturbation_.share;
  }

  /// Rows that fast steps wrote before hold keys of other tokens: they are computed once more with this one.
  bool launch_fast() {
    std::vector<engine::Chunk> rows = chunks_;
    std::vector<int64_t> computed;
    for (engine::Chunk& chunk : rows) {
      engine::Request& request = *chunk.request;
      computed.push_back(request.num_computed);
      if (request.tentative.is_open()) request.num_computed = request.tentative.begin - 1;
      chunk.num_tokens = request.num_missing();
    }
    own_->launch(rows);
    drawn_ = own_->collect();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const engine::Request& request = *rows[i].request;
      kernels::SampledToken& token = *drawn_[i];
      token.log_prob = -99;
      if (is_planted(request, std::ssize(request.tokens))) token.id = (token.id + 1) % vocab_size_;
    }
    // The same rows with other tokens.
    std::vector<std::vector<TokenId>> tokens;
    for (const engine::Chunk& chunk : rows) {
      engine::Request& request = *chunk.request;
      tokens.push_back(request.tokens);
      for (int64_t row = request.num_computed; row < std::ssize(request.tokens); ++row)
        request.tokens[row] = (request.tokens[row] + 7) % vocab_size_;
    }
    own_->launch(rows);
    own_->collect();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].request->tokens = tokens[i];
      rows[i].request->num_computed = computed[i];
    }
    return false;
  }

  void count(const engine::Chunk& chunk) {
    const engine::Request& request = *chunk.request;
    const auto end = static_cast<int64_t>(request.tokens.size());
    for (int64_t position = end - chunk.num_drafts; position < end; ++position) {
      ++perturbation_.num_compared;
      if (!is_planted(request, position)) continue;
      ++perturbation_.num_redrawn;
      return;
    }
  }

  std::unique_ptr<engine::StepRunner> own_;
  Perturbation& perturbation_;
  const TokenId vocab_size_;
  std::vector<engine::Chunk> chunks_;
  bool is_fast_ = false;
  std::vector<std::optional<kernels::SampledToken>> drawn_;  // by the fast step
  std::vector<std::vector<TokenId>> drafts_;                 // of the step in training arithmetic
};

}  // namespace slime::testing
