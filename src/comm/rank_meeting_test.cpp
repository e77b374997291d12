#include "comm/rank_meeting.h"

#include <gtest/gtest.h>

namespace slime::comm {
namespace {

TEST(RankClaim, SaysWhoConnectsAndWhatFor) {
  const RankClaim claim{.epoch = 2, .rank = 5, .group = 1, .port = 40'123, .address = "10.0.0.2"};
  EXPECT_EQ(to_text(claim), "2 5 1 40123 10.0.0.2");
  EXPECT_EQ(rank_claim_from(to_text(claim)), claim);
  const RankClaim table{.rank = 1, .group = RankClaim::kTable, .port = 1, .address = "127.0.0.1"};
  EXPECT_EQ(rank_claim_from(to_text(table)), table);
}

TEST(RankClaim, OfAnotherFormIsNone) {
  for (const char* text :
       {"", "2", "2 5 1 40123", "-1 5 1 40123 a", "2 -1 1 40123 10.0.0.2", "2 5 -2 40123 10.0.0.2",
        "2 5 1 65536 10.0.0.2", "2 5 1 40123 host", "2 5 1 40123 10.0.0.2\n", "x 5 1 1 10.0.0.2"})
    EXPECT_FALSE(rank_claim_from(text)) << text;
}

}  // namespace
}  // namespace slime::comm
