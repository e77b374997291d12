/// An engine whose device fails or hangs: who is told, and what goes on.

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "engine_fixture.h"

namespace slime {
namespace {

using engine::FinishReason;
using engine::GenerateUpdate;
using engine::PauseMode;
using testing::greedy_request;
using testing::some_tokens;

/// Moves when it is told to.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::seconds(seconds_.load())); }
  double unix_seconds() const override { return static_cast<double>(seconds_.load()); }
  void advance(int64_t seconds) { seconds_ += seconds; }

 private:
  std::atomic<int64_t> seconds_{1000};
};

/// A device with a step in flight, like a GPU. Draws token 5. The second launch waits for
/// `may_launch`, and what it launched is lost.
class BreakingRunner final : public engine::StepRunner {
 public:
  struct Script {
    std::promise<void> is_launching;
    std::promise<void> may_launch;
  };
  explicit BreakingRunner(Script& script) : script_(script) {}

  void copy_page(engine::PageId, engine::PageId) override {}
  bool launch(std::span<const engine::Chunk> chunks) override {
    if (++num_launched_ == 2) {
      script_.is_launching.set_value();
      script_.may_launch.get_future().wait();
    }
    auto& step = in_flight_.emplace_back();
    for (const engine::Chunk& chunk : chunks) {
      step.push_back(engine::draws_token(chunk)
                         ? std::optional(kernels::SampledToken{.id = 5, .log_prob = -1})
                         : std::nullopt);
    }
    return true;
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    if (++num_collected_ == 2) throw std::runtime_error("the device is lost");
    auto tokens = std::move(in_flight_.front());
    in_flight_.pop_front();
    return tokens;
  }
  void copy_weights(const engine::FreshWeights&) override {}
  void exchange_network(model::Network&) override {}
  double wait_for_weights() override { return 0; }
  void reset() override { in_flight_.clear(); }
  void release_memory() override {}
  void resume_memory() override {}
  at::ScalarType kv_dtype() const override { return at::kFloat; }

 private:
  Script& script_;
  std::deque<std::vector<std::optional<kernels::SampledToken>>> in_flight_;
  int num_launched_ = 0;
  int num_collected_ = 0;
};

struct TimedEngine {
  explicit TimedEngine(const engine::MakeStepRunner& make_runner = engine::make_step_runner)
      : network(model::load_network(golden_models::directory("qwen3"),
                                    model::Precision::of("float32"))),
        engine(*network, {.kv_cache_bytes = 8 << 20}, clock, make_runner) {}
  double stalled() const { return engine.load()->seconds_without_progress; }

  ManualClock clock;
  std::unique_ptr<model::Network> network;
  testing::Responses responses;
  engine::Engine engine;
};

TEST(EngineFailure, ADeviceErrorWhileAnAbortDrainsEndsRequestsAndNotTheProcess) {
  BreakingRunner::Script script;
  TimedEngine bench([&](model::Network&, const engine::StepRunnerConfig&) {
    return std::make_unique<BreakingRunner>(script);
  });
  auto request = greedy_request(some_tokens(9), 50);
  request.rid = "lost";
  bench.engine.submit(request, bench.responses.sink());
  script.is_launching.get_future().wait();
  bench.engine.abort_prefix("somebody else");
  script.may_launch.set_value();
  const GenerateUpdate out = bench.responses.wait("lost");
  EXPECT_EQ(out.finish->cause, FinishReason::Cause::kEngineFailed);
  EXPECT_NE(out.finish->message.find("the device is lost"), std::string::npos);
  request.rid = "next";
  bench.engine.submit(request, bench.responses.sink());
  EXPECT_EQ(bench.responses.wait("next").output_ids, std::vector<TokenId>(50, 5));
}

TEST(EngineProgress, NothingToDoIsNoLackOfProgress) {
  TimedEngine bench;
  auto request = greedy_request(some_tokens(9), 5);
  request.rid = "a";
  bench.engine.submit(request, bench.responses.sink());
  bench.responses.wait("a");
  ASSERT_TRUE(bench.engine.pause(PauseMode::kInPlace));  // also waits for the end of the step
  bench.clock.advance(1000);
  EXPECT_EQ(bench.stalled(), 0);
  EXPECT_EQ(bench.engine.load()->seconds_since_step, 1000);
  request.rid = "b";
  bench.engine.submit(request, bench.responses.sink());
  bench.engine.run_exclusive([] {});
  bench.clock.advance(1000);
  EXPECT_EQ(bench.stalled(), 0);  // paused: what waits is as it should be
  bench.engine.resume();
  bench.responses.wait("b");
  EXPECT_LT(bench.stalled(), 1);
}

TEST(EngineProgress, AStepThatDoesNotEndIsSeen) {
  std::promise<void> is_inside, may_leave;
  TimedEngine bench;
  bench.clock.advance(5000);  // a long idle time before it does not count
  auto request = greedy_request(some_tokens(9), 3);
  request.rid = "slow";
  bench.engine.submit(request, [&, first = true](GenerateUpdate) mutable {
    if (!std::exchange(first, false)) return;
    is_inside.set_value();
    may_leave.get_future().wait();
  });
  is_inside.get_future().wait();
  EXPECT_EQ(bench.stalled(), 0);
  bench.clock.advance(400);
  EXPECT_EQ(bench.stalled(), 400);
  may_leave.set_value();
}

TEST(EngineUpdate, ARefusedOneLeavesRequestsRunning) {
  testing::TestEngine bench("qwen3");
  auto request = greedy_request(some_tokens(20), 200);
  request.rid = "kept";
  bench.submit(request);
  bench.responses().wait_for_tokens("kept", 3);
  EXPECT_FALSE(bench.engine().update_weights(
      {.version = 3,
       .source = engine::FromDirectory{golden_models::directory("qwen2")},
       .running = engine::RunningRequests::kAbort,
       .stays_paused = true}));
  EXPECT_FALSE(bench.engine().load()->is_paused);
  const GenerateUpdate out = bench.responses().wait("kept");
  EXPECT_EQ(out.finish->kind, FinishReason::Kind::kLength);
  EXPECT_EQ(out.versions, (std::vector<VersionRun>{{0, 200}}));
}

TEST(EngineUpdate, OneThatAbortsAndPausesDoesBothAtOnce) {
  testing::TestEngine bench("qwen3");
  auto request = greedy_request(some_tokens(20), 230);
  request.rid = "ended";
  bench.submit(request);
  bench.responses().wait_for_tokens("ended", 2);
  ASSERT_TRUE(bench.engine().update_weights(
      {.version = 3, .running = engine::RunningRequests::kAbort, .stays_paused = true}));
  EXPECT_TRUE(bench.responses().wait("ended").finish.has_value());
  EXPECT_TRUE(bench.engine().load()->is_paused);
  EXPECT_EQ(bench.engine().weight_version(), 3);
}

TEST(EngineControl, AbortByPrefixEndsThoseOfThatName) {
  testing::TestEngine bench("qwen3");
  ASSERT_TRUE(bench.engine().pause(PauseMode::kInPlace));
  for (const char* rid : {"x_0", "x_1", "y_0"}) {
    auto request = greedy_request(some_tokens(9), 4);
    request.rid = rid;
    bench.submit(request);
  }
  ASSERT_TRUE(bench.engine().abort_prefix("x"));
  ASSERT_TRUE(bench.engine().resume());
  EXPECT_EQ(bench.responses().wait("x_0").finish->kind, FinishReason::Kind::kAbort);
  EXPECT_EQ(bench.responses().wait("x_1").finish->kind, FinishReason::Kind::kAbort);
  EXPECT_EQ(bench.responses().wait("y_0").output_ids.size(), 4U);
}

}  // namespace
}  // namespace slime
