#include "engine/adapter_tiles.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/random.h"
#include "engine/served_adapters.h"

namespace slime::engine {
namespace {

using kernels::AdapterTiles;

struct Tiles {
  std::vector<int32_t> slots, rows;

  Tiles(const std::vector<int64_t>& slot_T, int64_t num_adapters) {
    const auto most = static_cast<std::size_t>(
        AdapterTiles::most(static_cast<int64_t>(slot_T.size()), num_adapters));
    slots.resize(most, 99);
    rows.resize(most * AdapterTiles::kRows, 99);
    fill_adapter_tiles(slot_T, slots, rows);
  }
};

TEST(AdapterTilesTest, HaveEachRowOnceBesideItsAdapter) {
  for (int64_t seed = 0; seed < 200; ++seed) {
    auto number = [&, counter = uint64_t{0}](int64_t below) mutable {
      return static_cast<int64_t>(uniform(static_cast<uint64_t>(seed), 1, counter++) *
                                  static_cast<double>(below));
    };
    const int64_t num_adapters = 2 + number(70), num_rows = 1 + number(300);
    std::vector<int64_t> slot_T(static_cast<std::size_t>(num_rows));
    for (int64_t& slot : slot_T) slot = number(num_adapters + 1) - 1;
    const Tiles tiles(slot_T, num_adapters);
    std::vector<int> seen(slot_T.size());
    for (std::size_t i = 0; i < tiles.rows.size(); ++i) {
      const int32_t row = tiles.rows[i];
      if (row < 0) continue;
      ++seen.at(static_cast<std::size_t>(row));
      EXPECT_EQ(tiles.slots[i / AdapterTiles::kRows], slot_T[static_cast<std::size_t>(row)]);
    }
    EXPECT_EQ(seen, std::vector<int>(slot_T.size(), 1)) << seed;
  }
}

TEST(AdapterTilesTest, OfOneAdapterAreFull) {
  const Tiles tiles(std::vector<int64_t>(33, 5), 8);
  EXPECT_EQ(std::vector<int32_t>(tiles.slots.begin(), tiles.slots.begin() + 4),
            (std::vector<int32_t>{5, 5, 5, -1}));
  std::vector<int32_t> first(33);
  std::iota(first.begin(), first.end(), 0);
  EXPECT_EQ(std::vector<int32_t>(tiles.rows.begin(), tiles.rows.begin() + 33), first);
}

/// Three tokens of a prompt that go on in a later chunk, two that end one, and a row of decode; then padding.
TEST(AdapterTilesTest, SlotsAreThoseOfTheChunksRequests) {
  const auto adapter = [](int64_t slot) {
    auto loaded = std::make_shared<LoadedAdapter>();
    loaded->slot = slot;
    return loaded;
  };
  Request half, whole, plain;
  half.tokens = {1, 2, 3, 4, 5};
  half.adapter = adapter(2);
  whole.tokens = {1, 2};
  whole.adapter = adapter(0);
  plain.tokens = {1, 2};
  plain.num_computed = 1;
  for (Request* request : {&half, &whole, &plain}) {
    request->prompt_length = static_cast<int64_t>(request->tokens.size());
    request->max_tokens = request->prompt_length + 4;
  }
  const std::vector<Chunk> chunks{{&half, 3}, {&whole, 2}, {&plain, 1}};
  EXPECT_EQ(adapter_slots(chunks, 8), (std::vector<int64_t>{2, 2, 2, 0, 0, -1, -1, -1}));
  EXPECT_EQ(drawing_slots(chunks), (std::vector<int64_t>{0, -1}));
}

}  // namespace
}  // namespace slime::engine
