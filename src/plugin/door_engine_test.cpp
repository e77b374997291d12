#include "plugin/door_engine.h"

#include <gtest/gtest.h>

#include <vector>

namespace slime::plugin {
namespace {

/// An engine whose requests run until somebody ends them.
class OpenEngine final : public engine::EngineClient {
 public:
  engine::RequestHandle submit(engine::GenerateRequest, OnUpdate on_update) override {
    tell.push_back(std::move(on_update));
    return static_cast<engine::RequestHandle>(tell.size() - 1);
  }
  Expected<void> abort(engine::RequestHandle request) override {
    aborted.push_back(static_cast<uint64_t>(request));
    return {};
  }
  Expected<void> abort_prefix(const std::string&) override { return failure("the door's own"); }
  Expected<void> abort_all() override { return failure("the door's own"); }
  Expected<void> pause(engine::PauseMode) override { return {}; }
  Expected<void> resume() override { return {}; }
  Expected<bool> flush_cache() override { return true; }
  Expected<void> sleep() override { return {}; }
  Expected<void> wake() override { return {}; }
  Expected<void> update_weights(const engine::WeightUpdate&) override { return {}; }
  WeightVersion weight_version() const override { return 4; }
  Expected<engine::EngineLoad> load() const override { return engine::EngineLoad{}; }

  void end(std::size_t request) {
    engine::GenerateUpdate last;
    last.finish = engine::FinishReason{};
    tell[request](last);
  }

  std::vector<OnUpdate> tell;
  std::vector<uint64_t> aborted;
};

struct Door {
  OpenEngine engine;
  DoorEngine door;
  int num_ended = 0;
  Door() { door.open(engine); }
  void ask(const std::string& rid) {
    engine::GenerateRequest request;
    request.rid = rid;
    door.submit(std::move(request), [this](const engine::GenerateUpdate&) { ++num_ended; });
  }
};

TEST(DoorEngine, EndsOnlyWhatCameThroughIt) {
  Door own;
  own.engine.submit({}, nullptr);  // the run's
  own.ask("a-1");
  own.ask("a-2");
  own.ask("b");
  own.engine.end(1);
  EXPECT_EQ(own.num_ended, 1);
  ASSERT_TRUE(own.door.abort_prefix("a-"));
  EXPECT_EQ(own.engine.aborted, (std::vector<uint64_t>{2}));
  own.engine.end(2);
  ASSERT_TRUE(own.door.abort_all());
  EXPECT_EQ(own.engine.aborted, (std::vector<uint64_t>{2, 3}));
}

TEST(DoorEngine, CountsTheTokensThatWereSampledThroughIt) {
  Door own;
  own.engine.submit({}, [](const engine::GenerateUpdate&) {});  // the run's
  own.ask("a");
  engine::GenerateUpdate update;
  update.output_ids = {5, 6, 7};
  own.engine.tell[0](update);
  EXPECT_EQ(own.door.num_sampled_tokens(), 0);
  own.engine.tell[1](update);
  own.engine.end(1);
  EXPECT_EQ(own.door.num_sampled_tokens(), 3);
}

TEST(DoorEngine, WhileItIsAbortingEverythingEnds) {
  Door own;
  own.ask("a");
  own.door.set_aborting(true);
  EXPECT_EQ(own.engine.aborted, (std::vector<uint64_t>{0}));
  own.ask("b");
  EXPECT_EQ(own.engine.aborted, (std::vector<uint64_t>{0, 1}));
  own.door.set_aborting(false);
  own.ask("c");
  EXPECT_EQ(own.engine.aborted.size(), 2u);
}

TEST(DoorEngine, NeitherStopsTheEngineNorChangesItsWeights) {
  Door own;
  EXPECT_FALSE(own.door.pause(engine::PauseMode::kAbort));
  EXPECT_FALSE(own.door.resume());
  EXPECT_FALSE(own.door.sleep());
  EXPECT_FALSE(own.door.wake());
  const Expected<void> updated = own.door.update_weights({});
  ASSERT_FALSE(updated);
  EXPECT_EQ(updated.error().message, "this engine is a run's: the run updates its weights");
  EXPECT_EQ(own.door.weight_version(), 4);
}

}  // namespace
}  // namespace slime::plugin
