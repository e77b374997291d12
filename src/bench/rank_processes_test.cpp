#include "bench/rank_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::bench {
namespace {

TEST(RankProcesses, ALayoutIsWordsJoinedByDashes) {
  EXPECT_EQ(layout_from("1"), comm::ParallelLayout{});
  EXPECT_EQ(layout_from("dp2"), comm::ParallelLayout{.dp = 2});
  EXPECT_EQ(layout_from("tp2-sp"), (comm::ParallelLayout{.tp = 2, .sequence_parallel = true}));
  EXPECT_EQ(layout_from("dp2-cp4-contiguous"),
            (comm::ParallelLayout{.dp = 2, .cp = 4, .contiguous_context = true}));
  EXPECT_EQ(layout_from("pp2-chunks2-first10"),
            (comm::ParallelLayout{.pp = 2, .chunks = 2, .first_layers = 10}));
}

TEST(RankProcesses, AnotherWordIsNamed) {
  for (const char* text : {"", "dp", "dp0", "2", "dp2x", "ep2", "dp2--tp2"}) {
    EXPECT_THAT([&] { layout_from(text); },
                ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("is none of dpN")))
        << text;
  }
}

}  // namespace
}  // namespace slime::bench
