#include "setup/flush_rule.h"

#include <gtest/gtest.h>

#include <vector>

namespace slime::setup {
namespace {

std::vector<WeightVersion> flushed(int64_t interval, WeightVersion first_version) {
  std::vector<WeightVersion> versions;
  for (WeightVersion version = first_version + 1; version <= first_version + 7; ++version)
    if (flushes_cache(interval, version, first_version)) versions.push_back(version);
  return versions;
}

using Versions = std::vector<WeightVersion>;

TEST(FlushRule, ZeroAndLessFlushOnlyTheFirstUpdate) {
  for (const int64_t interval : {-100, -1, 0}) EXPECT_EQ(flushed(interval, 0), Versions{1});
}

TEST(FlushRule, EveryNthUpdateFlushesFromTheFirstOn) {
  EXPECT_EQ(flushed(1, 0), (Versions{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(flushed(2, 0), (Versions{1, 3, 5, 7}));
  EXPECT_EQ(flushed(3, 0), (Versions{1, 4, 7}));
}

TEST(FlushRule, ARunThatGoesOnFlushesFirstAndKeepsThePhase) {
  for (const int64_t interval : {-100, -1, 0}) EXPECT_EQ(flushed(interval, 5), Versions{6});
  EXPECT_EQ(flushed(1, 5), (Versions{6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(flushed(2, 5), (Versions{6, 7, 9, 11}));
  EXPECT_EQ(flushed(3, 5), (Versions{6, 7, 10}));
}

}  // namespace
}  // namespace slime::setup
