#include "engine/drafts/ending_table.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "core/splitmix64.h"

namespace slime::engine {
namespace {

TEST(EndingTable, KnowsTheLatestPlaceOfEachEndingAsAMapDoes) {
  EndingTable table;
  std::map<uint64_t, TextPlace> twin;
  std::vector<Ending> endings(1);  // by place
  const auto ending_of = [&endings](TextPlace place) { return endings[place]; };
  uint64_t draw = 1;
  for (TextPlace place = 1; place <= 20'000; ++place) {  // grows eight times, asked meanwhile
    const uint64_t late = splitmix64(++draw) % 9'000;
    endings.push_back({.late = late});
    EXPECT_EQ(table.exchange(endings.back(), place, ending_of), twin[late]) << place;
    twin[late] = place;
    const uint64_t asked = splitmix64(++draw) % 9'000;
    const auto known = twin.find(asked);
    EXPECT_EQ(table.find({.late = asked}, ending_of), known == twin.end() ? 0 : known->second);
  }
}

TEST(EndingTable, TellsEndingsApartWhoseLastTwoTokensAreEqual) {
  EndingTable table;
  std::vector<Ending> endings = {{}, {.late = 7, .early = 1}, {.late = 7, .early = 2}};
  const auto ending_of = [&endings](TextPlace place) { return endings[place]; };
  EXPECT_EQ(table.exchange(endings[1], 1, ending_of), 0U);
  EXPECT_EQ(table.exchange(endings[2], 2, ending_of), 0U);
  EXPECT_EQ(table.find(endings[1], ending_of), 1U);
  EXPECT_EQ(table.find(endings[2], ending_of), 2U);
  EXPECT_EQ(table.find({.late = 7}, ending_of), 0U);
}

TEST(EndingTable, HasAtMostElevenBytesAnEndingWhenNoneIsBeingMoved) {
  EndingTable table;
  std::vector<Ending> endings(1);
  const auto ending_of = [&endings](TextPlace place) { return endings[place]; };
  for (TextPlace place = 1; place <= 45'000; ++place) {
    endings.push_back({.late = place});
    table.exchange(endings.back(), place, ending_of);
    // Slots are doubled at a load of 0.7; those before that are kept for 0.5 times as many calls as there are.
    const int64_t most = 4 * (64 + 2 * place * 10 / 7);
    EXPECT_LE(table.num_bytes(), most + most / 2) << place;
  }
  EXPECT_EQ(table.num_bytes(), 4 * 65'536);
}

}  // namespace
}  // namespace slime::engine
