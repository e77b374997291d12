#include "engine/drawn_rows.h"

#include <gtest/gtest.h>

#include "engine/request.h"

namespace slime::engine {
namespace {

Request request_of(int64_t num_tokens, int64_t num_computed) {
  Request request;
  request.tokens.assign(static_cast<std::size_t>(num_tokens), 7);
  request.num_computed = num_computed;
  request.client.sampling.max_new_tokens = 8;
  return request;
}

TEST(DrawnRows, AreTheLastRowOfWhatCompletesAndThoseInFrontOfDrafts) {
  Request half = request_of(10, 0), decoding = request_of(5, 4), verified = request_of(12, 8);
  const std::vector<Chunk> chunks{{.request = &half, .num_tokens = 6},
                                  {.request = &decoding, .num_tokens = 1},
                                  {.request = &verified, .num_tokens = 4, .num_drafts = 3}};
  const std::vector<DrawnRow> drawn = drawn_rows(chunks);
  ASSERT_EQ(drawn.size(), 5U) << "a chunk of a prompt that goes on draws nothing";
  EXPECT_EQ(drawn[0].chunk, 1U);
  EXPECT_EQ(drawn[0].row, 6);
  EXPECT_EQ(drawn[0].position, 5);
  for (int64_t draw = 0; draw < 4; ++draw) {
    const DrawnRow& one = drawn[static_cast<std::size_t>(1 + draw)];
    EXPECT_EQ(one.chunk, 2U);
    EXPECT_EQ(one.draw, draw);
    EXPECT_EQ(one.row, 7 + draw);
    EXPECT_EQ(one.position, 9 + draw) << "where the draft stands that it is compared with";
  }
}

TEST(DrawnRows, ARequestThatWantsNoTokenDrawsNone) {
  Request scored = request_of(6, 0);
  scored.client.sampling.max_new_tokens = 0;
  const std::vector<Chunk> chunks{{.request = &scored, .num_tokens = 6}};
  EXPECT_TRUE(drawn_rows(chunks).empty());
}

TEST(DrawnRows, AreAtMostThoseOfAllDraftsOrOfAStepThatVerifies) {
  StepRunnerConfig config;
  config.max_running_requests = 200;
  config.max_prefill_tokens = 2048;
  EXPECT_EQ(most_drawn_rows(config), 1024) << "of the largest recorded step";
  config.most_drafts = 7;
  EXPECT_EQ(most_drawn_rows(config), 1600);
  config.most_drafts = 0;
  config.verify_tokens = 16;
  EXPECT_EQ(most_drawn_rows(config), 1024 + 2048);
}

}  // namespace
}  // namespace slime::engine
