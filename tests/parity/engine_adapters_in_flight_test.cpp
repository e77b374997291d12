// Adapters of steps that are launched before the step before them is collected.

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/served_adapters.h"
#include "engine/step_runner.h"
#include "engine_fixture.h"
#include "model/golden_models_for_tests.h"

namespace slime::engine {
namespace {

using testing::greedy_request;
using testing::TestEngine;

constexpr TokenId kDrawn = 5;

/// What a runner saw of an adapter that was unloaded when its request began.
struct Seen {
  ServedAdapters* adapters = nullptr;
  std::weak_ptr<const LoadedAdapter> adapter;
  std::vector<bool> is_there;  // when each step is collected
};

/// Runs ahead and draws one token again and again.
class WatchingRunner final : public StepRunner {
 public:
  explicit WatchingRunner(Seen& seen) : seen_(seen) {}

  bool launch(std::span<const Chunk> chunks) override {
    seen_.adapter = chunks.front().request->adapter;
    static_cast<void>(seen_.adapters->unload("a"));
    auto& step = in_flight_.emplace_back();
    for (const Chunk& chunk : chunks) {
      step.push_back(draws_token(chunk)
                         ? std::optional(kernels::SampledToken{.id = kDrawn, .log_prob = -1})
                         : std::nullopt);
    }
    return true;
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    seen_.is_there.push_back(!seen_.adapter.expired());
    auto tokens = std::move(in_flight_.front());
    in_flight_.pop_front();
    return tokens;
  }
  void copy_page(PageId, PageId) override {}
  void copy_weights(const FreshWeights&) override {}
  void exchange_network(model::Network&) override {}
  double wait_for_weights() override { return 0; }
  void reset() override { in_flight_.clear(); }
  void release_memory() override {}
  void resume_memory() override {}
  at::ScalarType kv_dtype() const override { return at::kFloat; }

 private:
  Seen& seen_;
  std::deque<std::vector<std::optional<kernels::SampledToken>>> in_flight_;
};

TEST(AdaptersInFlight, StayUntilTheirStepsAreCollected) {
  auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  ServedAdapters adapters(*network, 1);
  ASSERT_TRUE(adapters.load("a", std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/qwen3/qv_r8",
                            /*is_pinned=*/false, /*replaces=*/false));
  Seen seen{.adapters = &adapters};
  EngineConfig config;
  config.adapters = &adapters;
  TestEngine engine(std::move(network), config, [&](model::Network&, const StepRunnerConfig&) {
    return std::make_unique<WatchingRunner>(seen);
  });
  GenerateRequest request = greedy_request({1, 2, 3}, /*max_new_tokens=*/10);
  request.adapter = "a";
  request.sampling.ignore_eos = false;
  request.sampling.stop_token_ids = {kDrawn};
  EXPECT_EQ(engine.generate(std::move(request)).output_ids, std::vector<TokenId>{kDrawn});
  engine.engine().run_exclusive([] {});
  // The second step was launched before the first one ended the request.
  EXPECT_EQ(seen.is_there, (std::vector<bool>{true, true}));
  EXPECT_TRUE(seen.adapter.expired());
}

}  // namespace
}  // namespace slime::engine
