#include "plugin/run_api_engine.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/scripted_engine.h"

namespace slime::plugin {
namespace {

/// An engine whose requests, numbered from 0, run until a test ends them.
class OpenEngine final : public engine::ScriptedEngine {
 public:
  explicit OpenEngine(int tokens_to_draw)
      : ScriptedEngine([tokens_to_draw](engine::ScriptedRequest& running, WeightVersion of) {
          for (int i = 0; i < tokens_to_draw; ++i) running.draw(5, -1, of);
          running.finish(engine::FinishReason::Kind::kStop);
        }) {
    version = 4;
  }
  Expected<void> abort(engine::RequestHandle handle) override {
    aborted.push_back(static_cast<uint64_t>(handle) - 1);
    return {};
  }
  void end(uint64_t request) { step_of(static_cast<engine::RequestHandle>(request + 1)); }

  std::vector<uint64_t> aborted;
};

struct UserApi {
  OpenEngine engine;
  RunApiEngine client;
  int num_ended = 0;
  explicit UserApi(int tokens_to_draw = 0) : engine(tokens_to_draw) { client.open(engine); }
  void ask(const std::string& rid) {
    engine::GenerateRequest request;
    request.rid = rid;
    client.submit(std::move(request), [this](const engine::GenerateUpdate&) { ++num_ended; });
  }
};

TEST(RunApiEngine, EndsOnlyWhatCameThroughIt) {
  UserApi own;
  own.engine.submit({}, nullptr);  // the run's
  own.ask("a-1");
  own.ask("a-2");
  own.ask("b");
  own.engine.end(1);
  EXPECT_EQ(own.num_ended, 1);
  ASSERT_TRUE(own.client.abort_prefix("a-"));
  EXPECT_EQ(own.engine.aborted, (std::vector<uint64_t>{2}));
  own.engine.end(2);
  ASSERT_TRUE(own.client.abort_all());
  EXPECT_EQ(own.engine.aborted, (std::vector<uint64_t>{2, 3}));
}

TEST(RunApiEngine, CountsTheTokensThatWereSampledThroughIt) {
  UserApi own(/*tokens_to_draw=*/3);
  own.engine.submit({}, [](const engine::GenerateUpdate&) {});  // the run's
  own.ask("a");
  own.engine.end(0);
  EXPECT_EQ(own.client.num_sampled_tokens(), 0);
  own.engine.end(1);
  EXPECT_EQ(own.client.num_sampled_tokens(), 3);
}

TEST(RunApiEngine, WhileItIsAbortingEverythingEnds) {
  UserApi own;
  own.ask("a");
  own.client.set_aborting(true);
  EXPECT_EQ(own.engine.aborted, (std::vector<uint64_t>{0}));
  own.ask("b");
  EXPECT_EQ(own.engine.aborted, (std::vector<uint64_t>{0, 1}));
  own.client.set_aborting(false);
  own.ask("c");
  EXPECT_EQ(own.engine.aborted.size(), 2u);
}

TEST(RunApiEngine, NeitherStopsTheEngineNorChangesItsWeights) {
  UserApi own;
  EXPECT_FALSE(own.client.pause(engine::PauseMode::kAbort));
  EXPECT_FALSE(own.client.resume());
  EXPECT_FALSE(own.client.sleep());
  EXPECT_FALSE(own.client.wake());
  const Expected<void> updated = own.client.update_weights({});
  ASSERT_FALSE(updated);
  EXPECT_EQ(updated.error().message, "this engine is a run's: the run updates its weights");
  EXPECT_EQ(own.client.weight_version(), 4);
}

}  // namespace
}  // namespace slime::plugin
