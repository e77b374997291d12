/// A queue that is full.

#include <gtest/gtest.h>

#include "engine_fixture.h"

namespace slime {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::greedy_request;
using testing::TestEngine;

TEST(EngineQueue, ABoundCountsWhatWaitsAndNotWhatMayRun) {
  TestEngine bench("qwen3", {.max_running_requests = 4, .max_queued_requests = 2});
  bench.engine().pause(engine::PauseMode::kInPlace);
  const auto submit = [&](int i) {
    GenerateRequest request = greedy_request({3, 4, static_cast<TokenId>(5 + i)}, 4);
    request.rid = "r" + std::to_string(i);
    bench.submit(std::move(request));
  };
  for (int i = 0; i < 7; ++i) submit(i);
  const GenerateUpdate refused = bench.responses().wait("r6");
  EXPECT_EQ(refused.finish->cause, FinishReason::Cause::kQueueFull);
  EXPECT_NE(refused.finish->message.find("2 requests"), std::string::npos);
  bench.engine().resume();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(bench.responses().wait("r" + std::to_string(i)).finish->kind,
              FinishReason::Kind::kLength);
  }
}

}  // namespace
}  // namespace slime
