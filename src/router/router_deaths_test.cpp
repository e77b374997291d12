// Engines that die, leave and join at random instants, under load: every request is answered
// exactly once, with the tokens that one engine to which nothing happens draws.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <random>
#include <thread>

#include "router/router.h"
#include "router/stepwise_engine.h"

namespace slime::router {
namespace {

using Kind = engine::FinishReason::Kind;

const SystemClock kClock;
constexpr std::chrono::microseconds kMoment{50};

/// An engine and its thread, on which it draws and dies.
struct DrivenEngine {
  DrivenEngine() {
    engine.max_running = 20;
    thread = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested() && !is_to_die) {
        engine.step();
        std::this_thread::sleep_for(kMoment);
      }
      if (is_to_die) engine.die();
    });
  }
  StepwiseEngine engine;
  std::atomic<bool> is_to_die{false};
  EngineId id{};
  std::jthread thread;
};

struct Caller {
  std::mutex mutex;
  std::condition_variable ended;
  struct Response {
    uint64_t seed = 0;
    std::size_t prompt_length = 0;
    bool may_be_aborted = false;
    std::vector<TokenId> ids;
    std::vector<float> log_probs;
    int64_t num_of_versions = 0;
    int num_ends = 0;
    Kind how = Kind::kStop;
  };
  std::deque<Response> responses;  // guarded by mutex
  std::size_t num_ended = 0;       // guarded by mutex

  engine::RequestHandle submit(Router& router, std::mt19937& chance) {
    engine::GenerateRequest request;
    request.input_ids.resize(1 + chance() % 60);
    for (TokenId& id : request.input_ids) id = static_cast<TokenId>(chance() % 4);
    const uint64_t seed = chance();
    request.sampling.sampling_seed = seed;
    request.sampling.max_new_tokens = 1000;
    request.return_logprob = true;
    request.stream_interval = std::array{0, 1, 5}[chance() % 3];
    Response* response = nullptr;
    {
      const std::lock_guard lock(mutex);
      response = &responses.emplace_back(
          Response{.seed = seed, .prompt_length = request.input_ids.size()});
    }
    return router.submit(std::move(request), [this, response](engine::GenerateUpdate update) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(response->num_ends, 0) << "an update after the last one";
      response->ids.insert(response->ids.end(), update.output_ids.begin(), update.output_ids.end());
      response->log_probs.insert(response->log_probs.end(), update.output_log_probs.begin(),
                                 update.output_log_probs.end());
      for (const VersionRun& run : update.versions) response->num_of_versions += run.num_tokens;
      if (!update.finish) return;
      ++response->num_ends;
      response->how = update.finish->kind;
      ++num_ended;
      ended.notify_all();
    });
  }
};

void check(const Caller::Response& response, bool was_aborted) {
  EXPECT_EQ(response.num_ends, 1);
  EXPECT_EQ(response.num_of_versions, static_cast<int64_t>(response.ids.size()));
  ASSERT_EQ(response.log_probs.size(), response.ids.size());
  const std::size_t whole = StepwiseEngine::length_of(response.seed);
  if (was_aborted && response.how == Kind::kAbort) {
    EXPECT_LT(response.ids.size(), whole);
  } else {
    EXPECT_EQ(response.how, Kind::kStop);
    EXPECT_EQ(response.ids.size(), whole);
  }
  for (std::size_t i = 0; i < response.ids.size(); ++i) {
    const TokenId expected =
        i + 1 == whole ? kEnd : token_at(response.seed, response.prompt_length + i);
    EXPECT_EQ(response.ids[i], expected) << "token " << i;
    EXPECT_EQ(response.log_probs[i], -static_cast<float>(expected));
  }
}

class RouterDeaths : public testing::TestWithParam<unsigned> {};

TEST_P(RouterDeaths, EveryRequestIsAnsweredOnceWithItsTokens) {
  std::mt19937 chance(GetParam());
  Router router({.max_losses = 1000}, kClock);
  std::list<DrivenEngine> engines;
  const auto add = [&] {
    DrivenEngine& fresh = engines.emplace_back();
    fresh.id = *router.join(fresh.engine);
  };
  for (int i = 0; i < 3; ++i) add();

  Caller caller;
  constexpr int kRequests = 600;
  std::vector<bool> was_aborted(kRequests, false);
  std::jthread submits([&, own = std::mt19937(GetParam() + 1000)]() mutable {
    for (int i = 0; i < kRequests; ++i) {
      const engine::RequestHandle handle = caller.submit(router, own);
      if (own() % 10 == 0) {
        was_aborted[i] = true;
        EXPECT_TRUE(router.abort(handle));
      }
      if (own() % 4 == 0) std::this_thread::sleep_for(kMoment);
    }
  });
  int num_deaths = 0;
  for (int event = 0; event < 40; ++event) {
    std::this_thread::sleep_for(kMoment * (chance() % 40));
    if (engines.empty() || chance() % 2 == 0) {
      add();
      continue;
    }
    auto victim = std::next(engines.begin(), static_cast<int64_t>(chance() % engines.size()));
    if (chance() % 4 != 0) {
      victim->is_to_die = true;
      victim->thread.join();
      ++num_deaths;
    }
    router.leave(victim->id);  // the living hand on what they have
    engines.erase(victim);
  }
  EXPECT_GT(num_deaths, 5);
  if (engines.empty()) add();
  submits.join();
  {
    std::unique_lock lock(caller.mutex);
    EXPECT_TRUE(caller.ended.wait_for(lock, std::chrono::seconds(60),
                                      [&] { return caller.num_ended == kRequests; }));
  }
  for (DrivenEngine& engine : engines) {
    router.leave(engine.id);
    engine.thread.request_stop();
    engine.thread.join();
  }
  for (int i = 0; i < kRequests; ++i) {
    SCOPED_TRACE(i);
    check(caller.responses[i], was_aborted[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RouterDeaths, testing::Range(0U, 8U));

}  // namespace
}  // namespace slime::router
