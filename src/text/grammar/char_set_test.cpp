#include "text/grammar/char_set.h"

#include <gtest/gtest.h>

#include <set>

namespace slime::text {
namespace {

/// The slow twin: every character by itself.
std::set<uint32_t> characters_below(const CharSet& set, uint32_t end) {
  std::set<uint32_t> characters;
  for (uint32_t character = 0; character < end; ++character) {
    if (set.contains(character)) characters.insert(character);
  }
  return characters;
}

TEST(CharSet, RangesAreAscendingAndApart) {
  CharSet set{{5, 9}, {20, 30}, {1, 2}, {3, 4}, {25, 40}, {10, 10}};
  EXPECT_EQ(set.ranges(), (std::vector<CharRange>{{1, 10}, {20, 40}}));
  EXPECT_EQ(set.size(), 31);
  set.add({41, 50});
  set.add({0, 100});
  EXPECT_EQ(set.ranges(), (std::vector<CharRange>{{0, 100}}));
}

TEST(CharSet, HoldsNoSurrogates) {
  const CharSet set{{0xd000, 0xe000}};
  EXPECT_EQ(set.ranges(), (std::vector<CharRange>{{0xd000, 0xd7ff}, {0xe000, 0xe000}}));
  const CharSet all = CharSet().complement();
  EXPECT_EQ(all.size(), 0x110000 - 0x800);
  EXPECT_TRUE(all.complement().empty());
}

TEST(CharSet, ComplementAndIntersectionAreThoseOfSets) {
  for (uint32_t seed = 1; seed < 200; ++seed) {
    uint32_t state = seed * 2654435761U;
    const auto random = [&](uint32_t below) {
      state = state * 1664525 + 1013904223;
      return (state >> 8) % below;
    };
    CharSet one, other;
    for (int i = 0; i < 4; ++i) {
      const uint32_t first = random(60), second = random(60);
      one.add({first, first + random(9)});
      other.add({second, second + random(9)});
    }
    const auto a = characters_below(one, 80), b = characters_below(other, 80);
    const auto both = characters_below(one.intersection(other), 80);
    const auto rest = characters_below(one.complement(), 80);
    for (uint32_t character = 0; character < 80; ++character) {
      EXPECT_EQ(both.contains(character), a.contains(character) && b.contains(character));
      EXPECT_NE(rest.contains(character), a.contains(character));
    }
  }
}

}  // namespace
}  // namespace slime::text
