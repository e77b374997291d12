#include "buffer/equal_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::buffer {
namespace {

using ::testing::ElementsAre;

TEST(EqualProblems, RowsThatSayTheSameAreOne) {
  EXPECT_THAT(
      joined_problems({"a.jsonl, line 1: no field \"input\"", "a.jsonl, line 2: no field \"input\"",
                       "a.jsonl, line 3: no field \"input\"", "... and perhaps more"}),
      ElementsAre("a.jsonl, line 1: no field \"input\" (and lines 2 to 3)",
                  "... and perhaps more"));
}

TEST(EqualProblems, OthersStayWhatTheyAre) {
  EXPECT_THAT(joined_problems({"a.jsonl, line 1: x", "b.jsonl, line 1: x", "a.jsonl, line 2: y",
                               "a.jsonl, line 4: x", "a.jsonl, line 9: x", "no place"}),
              ElementsAre("a.jsonl, line 1: x (and lines 4, 9)", "b.jsonl, line 1: x",
                          "a.jsonl, line 2: y", "no place"));
  EXPECT_THAT(joined_problems({"a.parquet, row 1: x", "a.parquet, row 5: x"}),
              ElementsAre("a.parquet, row 1: x (and row 5)"));
}

}  // namespace
}  // namespace slime::buffer
