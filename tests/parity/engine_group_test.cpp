// Ranks that train make up an engine of several: they find one another, draw what one rank draws, and learn
// of one another's ends.

#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine_fixture.h"
#include "rank_threads.h"
#include "roles/engine_group.h"

namespace slime::parity {
namespace {

using namespace testing;

const model::Precision kFloat = model::Precision::of("float32");

roles::EngineGroupConfig pair_of_ranks() {
  return {.size = 2,
          .address = "127.0.0.1",
          .identity = {.token = std::string(64, '7'), .epoch = 1},
          .timeout = std::chrono::seconds(60)};
}

/// body(group, its slices) on the ranks that lead; the others follow, and say how that ended.
void on_pairs(int ranks, const std::function<void(roles::EngineGroup&, model::Network&)>& body,
              std::vector<std::string>* ends = nullptr) {
  std::mutex mutex;
  on_ranks(ranks, [&](const comm::Mesh& mesh) {
    std::optional<roles::EngineGroup> group(std::in_place, mesh, pair_of_ranks());
    EXPECT_EQ(group->leads(), mesh.rank() % 2 == 0);
    const auto slices =
        model::load_network(golden_models::directory("qwen3"), kFloat, group->mesh());
    if (group->leads()) {
      body(*group, *slices);
      group.reset();  // the follower sees the end of its connection
      mesh.world().barrier("leading has ended");
      return;
    }
    std::string end = "the leader is gone";
    try {
      group->follow(*slices, kFloat);
    } catch (const std::exception& error) {
      end = error.what();
    }
    // A rank that follows no longer still trains: its group outlives this.
    mesh.world().barrier("leading has ended");
    const std::lock_guard lock(mutex);
    if (ends != nullptr) ends->push_back(end);
  });
}

TEST(EngineGroup, EachPairOfNeighboursIsAnEngine) {
  engine::GenerateRequest request;
  request.rid = "a";
  request.input_ids = {1, 2, 3};
  request.sampling.temperature = 0;
  request.sampling.max_new_tokens = 5;
  TestEngine alone("qwen3");
  alone.engine().submit(request, alone.responses().sink());
  const std::vector<TokenId> expected = alone.responses().wait("a").output_ids;
  const SystemClock clock;
  std::vector<std::string> ends;
  on_pairs(
      4,
      [&](roles::EngineGroup& group, model::Network& slices) {
        engine::EngineConfig config;
        config.kv_cache_bytes = 8 << 20;
        config.mesh = &group.mesh();
        engine::Engine engine(slices, config, clock, group.make_runner());
        Responses responses;
        engine.submit(request, responses.sink());
        EXPECT_EQ(responses.wait("a").output_ids, expected);
      },
      &ends);
  EXPECT_EQ(ends, (std::vector<std::string>(2, "the leader is gone")));
}

TEST(EngineGroup, AFollowerThatGivesUpIsGoneForItsLeader) {
  std::vector<std::string> ends;
  on_pairs(
      2,
      [&](roles::EngineGroup& group, model::Network& slices) {
        const engine::StepRunnerConfig config{.num_pages = 8,
                                              .max_running_requests = 1,
                                              .max_prefill_tokens = 16,
                                              .context_length = 64};
        const auto runner = group.make_runner()(slices, config);
        // Somebody else gives the network its weights; an answer would never come.
        const Expected<void> loaded = runner->load_elsewhere(golden_models::directory("qwen3"));
        ASSERT_FALSE(loaded);
        EXPECT_EQ(loaded.error().message, "rank 1 of the engine is gone");
      },
      &ends);
  EXPECT_EQ(ends, std::vector<std::string>{"weights come for a network of somebody else's"});
}

}  // namespace
}  // namespace slime::parity
