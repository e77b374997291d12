#pragma once

/// A device with a step in flight, like a GPU, whose network is a chain of hashes: the key of a token is a hash of
/// the key before it, the token and the weights.
///
/// With EngineConfig::verify_tokens fast steps draw another token now and then, and mark their keys: a step in
/// training arithmetic that goes on from a marked one was given what nobody verified.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/splitmix64.h"
#include "engine/step_runner.h"

namespace slime::testing {

class HashingRunner final : public engine::StepRunner {
 public:
  /// A token's id is its label, that of the weights, times kRest, and what its key says.
  static constexpr int64_t kLabels = 24, kRest = 16;
  HashingRunner(model::Network& network, const engine::StepRunnerConfig& config)
      : keys_(static_cast<std::size_t>(config.num_pages * kPage)),
        weights_(network.weights().flat()[0].item<float>()) {}

  void copy_page(engine::PageId from, engine::PageId to) override {
    std::copy_n(keys_.begin() + from * kPage, kPage, keys_.begin() + to * kPage);
  }
  bool has_exact_steps() const override { return true; }
  bool launch(std::span<const engine::Chunk> chunks) override {
    Step step;
    std::vector<TokenId> sampled;
    for (const engine::Chunk& chunk : chunks) {
      EXPECT_EQ(chunk.is_tentative, chunks.front().is_tentative);
      EXPECT_EQ(chunk.arithmetic, chunks.front().arithmetic);
      std::vector<kernels::SampledToken> drawn = compute(chunk);
      step.tokens.emplace_back();
      step.behind.emplace_back();
      if (!engine::draws_token(chunk)) continue;
      step.tokens.back() = drawn.front();
      sampled.push_back(drawn.front().id);
      step.behind.back().assign(drawn.begin() + 1, drawn.end());
      verified += chunk.num_drafts;
    }
    last_sampled_ = std::move(sampled);
    in_flight_.push_back(std::move(step));
    return true;
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    collected_ = std::move(in_flight_.front());
    in_flight_.pop_front();
    return collected_.tokens;
  }
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk) override {
    return std::move(collected_.behind.at(chunk));
  }
  void copy_weights(const engine::FreshWeights& fresh) override {
    changed_in_flight += in_flight_.empty() ? 0 : 1;
    weights_ = fresh.flat_N[0].item<float>();
  }
  void exchange_network(model::Network& network) override {
    copy_weights({network.weights().flat(), {}});
  }
  double wait_for_weights() override { return 0; }
  void reset() override { in_flight_.clear(); }
  void release_memory() override {}
  void resume_memory() override {}
  at::ScalarType kv_dtype() const override { return at::kFloat; }

  /// Updates that came while a step was in flight, of all runners.
  inline static std::atomic<int64_t> changed_in_flight = 0;
  /// Drafts in steps of all runners.
  inline static std::atomic<int64_t> verified = 0;

 private:
  struct Step {
    std::vector<std::optional<kernels::SampledToken>> tokens;
    std::vector<std::vector<kernels::SampledToken>> behind;
  };
  static constexpr int64_t kPage = 16;
  static constexpr uint64_t kFast = uint64_t{1} << 63;  // of keys that fast steps wrote

  /// What its last rows draw: one behind each draft, and the one before.
  std::vector<kernels::SampledToken> compute(const engine::Chunk& chunk) {
    const engine::Request& request = *chunk.request;
    std::vector<kernels::SampledToken> drawn;
    for (int64_t i = 0; i < chunk.num_tokens; ++i) {
      const int64_t position = request.num_computed + i;
      TokenId id = request.tokens[position];
      if (id == engine::kPendingToken) id = last_sampled_.at(request.sampled_row);
      const uint64_t before = position == 0 ? 0 : key_at(request, position - 1);
      if (!chunk.is_tentative) {
        EXPECT_EQ(before & kFast, 0) << "position " << position - 1 << " was never verified";
      }
      const uint64_t key = splitmix64((before & ~kFast) * 31 + static_cast<uint64_t>(id) * 1009 +
                                      static_cast<uint64_t>(weights_) * 65537) &
                           ~kFast;
      key_at(request, position) = chunk.is_tentative ? key | kFast : key;
      if (i + chunk.num_drafts + 1 < chunk.num_tokens) continue;
      const auto label = static_cast<int64_t>(weights_) % kLabels;
      const uint64_t slip = chunk.is_tentative && key / kRest % 5 == 0 ? 1 : 0;
      drawn.push_back(
          {.id = static_cast<TokenId>(label * kRest + static_cast<int64_t>((key + slip) % kRest)),
           .log_prob = -1});
    }
    return drawn;
  }

  uint64_t& key_at(const engine::Request& request, int64_t position) {
    return keys_[static_cast<std::size_t>(request.pages[position / kPage] * kPage +
                                          position % kPage)];
  }

  std::vector<uint64_t> keys_;
  float weights_;
  std::vector<TokenId> last_sampled_;
  std::deque<Step> in_flight_;
  Step collected_;
};

}  // namespace slime::testing
