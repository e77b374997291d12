#include "engine/cache_groups.h"

#include <gtest/gtest.h>

#include "engine/cache_shape.h"
#include "engine/gpu_caches.h"
#include "engine/paged_kv_cache.h"

namespace slime::engine {
namespace {

std::vector<model::BlockNeeds> layers(int64_t count) {
  model::BlockNeeds needs;
  needs.cache = {.heads = 2, .queries_per_head = 4, .key_size = 8, .value_size = 8};
  return std::vector<model::BlockNeeds>(static_cast<std::size_t>(count), needs);
}

/// `every`: of so many layers the last sees all.
std::vector<int64_t> windows(int64_t count, int64_t every, int64_t tokens = 1024) {
  std::vector<int64_t> by_layer;
  for (int64_t i = 0; i < count; ++i) by_layer.push_back((i + 1) % every == 0 ? 0 : tokens);
  return by_layer;
}

constexpr int64_t kLongest = 32768;

TEST(CacheGroups, OfLayersInTurnsAreOneOfEachKind) {
  const auto blocks = layers(4);
  const auto by_layer = windows(4, 2);
  EXPECT_EQ(page_window(blocks, by_layer, kLongest).num_groups, 1);
  const CacheGroups groups = cache_groups(blocks, by_layer, 1);
  EXPECT_EQ(groups.num_groups, 2);
  EXPECT_EQ(groups.num_slots, 2);
  for (int64_t layer = 0; layer < 4; ++layer) {
    const CacheGroups::Place& place = groups.of_layer[static_cast<std::size_t>(layer)];
    EXPECT_EQ(place.group, layer % 2 == 0 ? 1 : 0);
    EXPECT_EQ(place.slot, layer / 2);
  }
  EXPECT_EQ(PagedKvCache::page_bytes(blocks, at::kFloat, groups),
            PagedKvCache::page_bytes(layers(2), at::kFloat));
  EXPECT_EQ(gpu_page_bytes(blocks, at::kBFloat16, groups),
            gpu_page_bytes(layers(2), at::kBFloat16, one_group(layers(2))));
}

TEST(CacheGroups, OfFiveLayersWithAWindowToAFullOneAreSeven) {
  // 62 layers: 10 see all, 52 a window; the last group has 2 of 10.
  const auto blocks = layers(62);
  const auto by_layer = windows(62, 6);
  const PageWindow window = page_window(blocks, by_layer, kLongest);
  EXPECT_EQ(window.tokens, 1024);
  EXPECT_EQ(window.num_groups, 6);
  EXPECT_EQ(window.num_tables(), 7);
  // Each layer has a place of its own.
  const CacheGroups groups = cache_groups(blocks, by_layer, window.num_groups);
  std::vector<std::vector<int>> taken(7, std::vector<int>(10, 0));
  for (const auto& [group, slot] : groups.of_layer) ++taken.at(group).at(slot);
  for (std::size_t group = 0; group < 7; ++group)
    for (std::size_t slot = 0; slot < 10; ++slot)
      EXPECT_EQ(taken[group][slot], group == 6 && slot >= 2 ? 0 : 1) << group << " " << slot;
}

TEST(CacheGroups, ThereAreNoneWhereNothingWouldBeGained) {
  EXPECT_FALSE(page_window(layers(8), windows(8, 1), kLongest)) << "all see all";
  const PageWindow all = page_window(layers(8), windows(8, 100), kLongest);
  EXPECT_EQ(all.tokens, 1024);
  EXPECT_EQ(all.num_groups, 0) << "every layer has a window";
  // 7 layers see all and 1 a window: 6 of 14 places would be empty.
  std::vector<int64_t> few(8, 0);
  few[3] = 1024;
  EXPECT_FALSE(page_window(layers(8), few, kLongest));
  EXPECT_FALSE(page_window(layers(8), windows(8, 2), 1024)) << "no request is behind its window";
  auto states = layers(8);
  states[1].cache = {.state_bytes = 64};
  EXPECT_FALSE(page_window(states, windows(8, 2), kLongest));
}

TEST(CacheGroups, WithoutThemAllLayersAreInOnePage) {
  auto blocks = layers(3);
  blocks[1].cache = {.state_bytes = 64};
  const CacheGroups groups = one_group(blocks);
  EXPECT_EQ(groups.num_slots, 2);
  EXPECT_EQ(groups.of_layer[0].slot, 0);
  EXPECT_EQ(groups.of_layer[1].slot, -1);
  EXPECT_EQ(groups.of_layer[2].slot, 1);
  EXPECT_EQ(groups.of_layer[2].group, 0);
}

TEST(PageWindow, CountsThePagesOfAllTables) {
  const PageWindow none, all{.tokens = 100, .block_tokens = 64},
      some{.tokens = 100, .block_tokens = 64, .num_groups = 3};
  EXPECT_EQ(none.most_pages(1000, 16, 16), 63);
  EXPECT_EQ(all.most_pages(1000, 16, 16), 16) << "100 + 128 + 16 tokens";
  EXPECT_EQ(all.most_pages(100, 16, 16), 7);
  EXPECT_EQ(some.most_pages(1000, 16, 16), 63 + 3 * 16);
  EXPECT_EQ(some.most_pages(100, 16, 16), 4 * 7);
}

}  // namespace
}  // namespace slime::engine
