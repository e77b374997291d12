#include "engine/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/splitmix64.h"

namespace slime::engine {
namespace {

constexpr int64_t kPage = 4;

std::vector<TokenKey> count_from(TokenKey first, int64_t count) {
  std::vector<TokenKey> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<PageId> allocate(PagePool& pool, int64_t count) {
  std::vector<PageId> pages;
  for (int64_t i = 0; i < count; ++i) pages.push_back(pool.allocate().value());
  return pages;
}

void release(PagePool& pool, const std::vector<PageId>& pages) {
  for (const PageId page : pages) pool.release(page);
}

TEST(PrefixTree, FindsFullPagesAndThePartOfTheNextOne) {
  PagePool pool(8);
  PrefixTree tree(pool, kPage);
  auto pages = allocate(pool, 3);
  tree.insert(count_from(0, 10), pages);  // two full pages, two tokens in the third
  auto tokens = count_from(0, 9);
  tokens.push_back(77);
  const auto match = tree.match(tokens);
  EXPECT_EQ(match.num_tokens, 9);
  EXPECT_EQ(match.pages, (std::vector<PageId>{pages[0], pages[1]}));
  EXPECT_EQ(match.partial_page, pages[2]);
  EXPECT_EQ(match.num_partial, 1);
  EXPECT_EQ(tree.match(count_from(50, 9)).num_tokens, 0);
  EXPECT_EQ(tree.match(count_from(0, 6)).num_partial, 2);
}

TEST(PrefixTree, ALaterInsertExtendsAPartlyFilledPage) {
  PagePool pool(8);
  PrefixTree tree(pool, kPage);
  auto pages = allocate(pool, 2);
  tree.insert(count_from(0, 6), pages);
  tree.insert(count_from(0, 8), pages);
  EXPECT_EQ(tree.num_pages(), 2);
  EXPECT_EQ(tree.match(count_from(0, 9)).pages, pages);
}

TEST(PrefixTree, EqualPagesAreSwappedForTheOnesItHas) {
  PagePool pool(8);
  PrefixTree tree(pool, kPage);
  auto first = allocate(pool, 2);
  auto second = allocate(pool, 2);
  tree.insert(count_from(0, 8), first);
  tree.insert(count_from(0, 8), second);
  EXPECT_EQ(first, second);
  EXPECT_EQ(pool.num_free(), 6);
  release(pool, first);
  release(pool, second);
  EXPECT_EQ(pool.num_evictable(), 2);
}

TEST(PrefixTree, BranchesInsideAPartlyFilledPageStaySeparate) {
  PagePool pool(8);
  PrefixTree tree(pool, kPage);
  auto owner = allocate(pool, 1);
  tree.insert(count_from(0, 2), owner);  // the prompt
  auto sibling = allocate(pool, 1);      // copied, continued with 9
  tree.insert(std::vector<TokenKey>{0, 1, 9, 9}, sibling);
  tree.insert(std::vector<TokenKey>{0, 1, 9, 7}, owner);  // the owner continued otherwise
  EXPECT_EQ(tree.match(std::vector<TokenKey>{0, 1, 9, 9, 5}).pages, sibling);
  EXPECT_EQ(tree.match(std::vector<TokenKey>{0, 1, 9, 7, 5}).pages, owner);
}

TEST(PrefixTree, FindsWhatALookAtEveryCachedPromptFinds) {
  constexpr int64_t kPrompts = 300;
  PagePool pool(4 * kPrompts);
  PrefixTree tree(pool, kPage);
  std::vector<std::vector<TokenKey>> cached;
  uint64_t draw = 1;
  const auto prompt = [&draw] {  // of two kinds of tokens, so that many begin alike
    std::vector<TokenKey> tokens(1 + splitmix64(++draw) % 13);
    for (TokenKey& token : tokens) token = static_cast<TokenKey>(splitmix64(++draw) % 2);
    return tokens;
  };
  for (int64_t i = 0; i < kPrompts; ++i) {
    const std::vector<TokenKey> asked = prompt();
    std::size_t longest = 0;
    for (const auto& each : cached) {
      const auto common = std::ranges::mismatch(each, asked).in1 - each.begin();
      longest = std::max(longest, static_cast<std::size_t>(common));
    }
    EXPECT_EQ(tree.match(asked).num_tokens, static_cast<int64_t>(longest)) << i;
    cached.push_back(prompt());
    auto pages = allocate(pool, (static_cast<int64_t>(cached.back().size()) + kPage - 1) / kPage);
    tree.insert(cached.back(), pages);
    release(pool, pages);
  }
  tree.clear();
  EXPECT_EQ(pool.num_free(), 4 * kPrompts);
}

TEST(PrefixTree, APromptCostsTheSameHoweverManyBeginAsItDoes) {
  constexpr int kBatch = 2'000, kBatches = 20;
  constexpr int64_t kTokens = 16;
  PagePool pool(kBatch * kBatches + 2);  // and one that is swapped for the head
  PrefixTree tree(pool, kTokens);
  uint64_t draw = 0;
  std::vector<int64_t> compared;  // by each batch
  for (int batch = 0; batch < kBatches; ++batch) {
    const int64_t before = tree.num_compared();
    for (int i = 0; i < kBatch; ++i) {
      std::vector<TokenKey> tokens = count_from(0, 24);  // the head: a page and a half
      while (tokens.size() < 32) tokens.push_back(static_cast<TokenKey>(splitmix64(++draw) % 256));
      EXPECT_GE(tree.match(tokens).num_tokens, batch + i == 0 ? 0 : 24);
      auto pages = allocate(pool, 2);
      tree.insert(tokens, pages);
      release(pool, pages);
    }
    compared.push_back(tree.num_compared() - before);
  }
  // Looking at each of them costs 20 times as much at the end.
  EXPECT_LT(compared.back(), 2 * compared[1]);
  EXPECT_LT(compared.back(), kBatch * 100);
}

TEST(PrefixTree, EvictsLeavesThatNobodyReadsOldestFirst) {
  PagePool pool(6);
  PrefixTree tree(pool, kPage);
  auto old_pages = allocate(pool, 2);
  auto new_pages = allocate(pool, 2);
  auto read_pages = allocate(pool, 2);
  tree.insert(count_from(0, 8), old_pages);
  tree.insert(count_from(100, 8), new_pages);
  tree.insert(count_from(200, 8), read_pages);
  release(pool, old_pages);
  release(pool, new_pages);
  tree.match(count_from(0, 8));  // makes the old one the most recent
  tree.evict_until_free(1);
  EXPECT_EQ(tree.match(count_from(100, 8)).num_tokens, 4) << "the leaf goes before its parent";
  EXPECT_EQ(tree.match(count_from(0, 8)).num_tokens, 8);
  tree.evict_until_free(6);
  EXPECT_EQ(pool.num_free(), 4) << "pages in use stay";
  release(pool, read_pages);
  EXPECT_EQ(pool.num_available(), 6);
}

TEST(PrefixTree, ClearGivesEverythingBackThatIsNotInUse) {
  PagePool pool(4);
  PrefixTree tree(pool, kPage);
  auto pages = allocate(pool, 3);
  tree.insert(count_from(0, 12), pages);
  tree.clear();
  EXPECT_EQ(tree.match(count_from(0, 12)).num_tokens, 0);
  EXPECT_EQ(pool.num_free(), 1);
  release(pool, pages);
  EXPECT_EQ(pool.num_free(), 4);
}

/// One page at a time, as decode asks for them, beside very many that requests read: passing all of
/// those each time would take minutes.
TEST(PrefixTree, EvictionDoesNotPassPagesInUseAgainAndAgain) {
  constexpr int64_t kInUse = 200000, kUnused = 20000;
  PagePool pool(kInUse + kUnused);
  PrefixTree tree(pool, kPage);
  auto in_use = allocate(pool, kInUse);
  for (int64_t i = 0; i < kInUse; i += 1000) {
    std::vector<PageId> pages(in_use.begin() + i, in_use.begin() + i + 1000);
    tree.insert(count_from(static_cast<TokenKey>(i), 1000 * kPage), pages);
  }
  for (int64_t i = 0; i < kUnused; ++i) {
    auto page = allocate(pool, 1);
    tree.insert(count_from(static_cast<TokenKey>(10000000 + i), kPage), page);
    release(pool, page);
  }
  for (int64_t i = 1; i <= kUnused; ++i) {
    tree.evict_until_free(i);
    ASSERT_EQ(pool.num_free(), i);
  }
  tree.evict_until_free(kUnused + 1);  // all others are in use
  EXPECT_EQ(tree.num_pages(), kInUse);
  EXPECT_EQ(tree.match(count_from(10000000, kPage)).num_tokens, 0);
  release(pool, in_use);
  tree.evict_until_free(kUnused + 5);
  EXPECT_EQ(pool.num_free(), kUnused + 5);
}

constexpr PageWindow kWindow{.tokens = 5, .block_tokens = kPage};

TEST(PrefixTreeWithWindow, FindsAPrefixWhoseLastWindowIsThere) {
  PagePool pool(16);
  PrefixTree tree(pool, kPage, nullptr, kWindow);
  auto pages = allocate(pool, 6);
  for (int i = 0; i < 3; ++i) pool.release(std::exchange(pages[i], kNoPage));
  tree.insert(count_from(0, 22), pages);
  EXPECT_EQ(tree.num_pages(), 3);
  const auto match = tree.match(count_from(0, 30));
  EXPECT_EQ(match.num_tokens, 22);
  EXPECT_EQ(match.pages, (std::vector<PageId>{kNoPage, kNoPage, kNoPage, kNoPage, pages[4]}))
      << "17 to 21 are seen from 22";
  EXPECT_EQ(match.partial_page, pages[5]);
  EXPECT_EQ(tree.match(count_from(0, 20)).num_tokens, 20) << "from 16, block 4";
  EXPECT_EQ(tree.match(count_from(0, 16)).num_tokens, 16) << "from 12, block 3";
  EXPECT_EQ(tree.match(count_from(0, 15)).num_tokens, 0) << "11 is gone";
}

TEST(PrefixTreeWithWindow, APageThatWasMissingIsTaken) {
  PagePool pool(16);
  PrefixTree tree(pool, kPage, nullptr, kWindow);
  auto pages = allocate(pool, 4);
  pool.release(std::exchange(pages[0], kNoPage));
  tree.insert(count_from(0, 16), pages);
  EXPECT_EQ(tree.match(count_from(0, 4)).num_tokens, 0);
  auto other = allocate(pool, 1);
  tree.insert(count_from(0, 4), other);
  EXPECT_EQ(tree.match(count_from(0, 4)).pages, other);
  EXPECT_EQ(tree.num_pages(), 4);
}

TEST(PrefixTreeWithWindow, PagesBeforeOnesInUseAreEvictedAndWhatLedToNothingGoes) {
  PagePool pool(6);
  PrefixTree tree(pool, kPage, nullptr, kWindow);
  auto pages = allocate(pool, 6);
  tree.insert(count_from(0, 24), pages);
  for (int i = 0; i < 4; ++i) pool.release(pages[i]);  // the last two stay in use
  EXPECT_EQ(pool.num_available(), 4);
  tree.evict_until_free(3);
  EXPECT_GE(pool.num_free(), 3);
  tree.evict_until_free(4);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(tree.match(count_from(0, 24)).num_tokens, 24);
  pool.release(pages[4]);
  pool.release(pages[5]);
  tree.evict_until_free(6);
  EXPECT_EQ(pool.num_free(), 6);
  EXPECT_EQ(tree.num_pages(), 0);
  auto again = allocate(pool, 1);
  tree.insert(count_from(0, 4), again);
  EXPECT_EQ(tree.match(count_from(0, 24)).num_tokens, 4);
}

constexpr PageWindow kWithGroups{.tokens = 5, .block_tokens = kPage, .num_groups = 2};
using Tables = std::vector<std::vector<PageId>>;

/// As a request holds them: all of layers that see all tokens, window pages from `begin` on.
struct Held {
  Held(PagePool& pool, int64_t count, int64_t begin = 0) : pages(allocate(pool, count)) {
    for (std::vector<PageId>& table : windows) {
      table.assign(static_cast<std::size_t>(begin), kNoPage);
      for (int64_t i = begin; i < count; ++i) table.push_back(pool.allocate().value());
    }
  }
  void release_windows(PagePool& pool, int64_t begin, int64_t end) {
    for (std::vector<PageId>& table : windows)
      for (int64_t i = begin; i < end; ++i)
        if (table[i] != kNoPage) pool.release(std::exchange(table[i], kNoPage));
  }
  void release_all(PagePool& pool) {
    release_windows(pool, 0, static_cast<int64_t>(pages.size()));
    release(pool, pages);
  }
  std::vector<PageId> pages;
  Tables windows{2};
};

TEST(PrefixTreeWithGroups, FindsAPrefixWhoseLastWindowIsThere) {
  PagePool pool(32);
  PrefixTree tree(pool, kPage, nullptr, kWithGroups);
  Held held(pool, 6, 3);
  tree.insert(count_from(0, 22), held.pages, {}, held.windows);
  EXPECT_EQ(tree.num_pages(), 6 + 2 * 3);
  const auto match = tree.match(count_from(0, 30));
  EXPECT_EQ(match.num_tokens, 22);
  EXPECT_EQ(match.pages, (std::vector<PageId>(held.pages.begin(), held.pages.begin() + 5)));
  ASSERT_EQ(match.window_pages.size(), 2U);
  for (int group = 0; group < 2; ++group) {
    const auto& own = held.windows[group];
    EXPECT_EQ(match.window_pages[group],
              (std::vector<PageId>{kNoPage, kNoPage, kNoPage, kNoPage, own[4]}))
        << "17 to 21 are seen from 22";
    EXPECT_EQ(match.partial_window_pages[group], own[5]);
  }
  EXPECT_EQ(match.partial_page, held.pages[5]);
  EXPECT_EQ(tree.match(count_from(0, 20)).num_tokens, 20) << "from 16, block 4";
  EXPECT_EQ(tree.match(count_from(0, 16)).num_tokens, 16) << "from 12, block 3";
  const auto gone = tree.match(count_from(0, 15));
  EXPECT_EQ(gone.num_tokens, 0) << "11 is gone";
  EXPECT_TRUE(gone.pages.empty());
  EXPECT_EQ(gone.window_pages, Tables(2));
}

TEST(PrefixTreeWithGroups, EqualPagesAreSwappedAndMissingOnesTaken) {
  PagePool pool(64);
  PrefixTree tree(pool, kPage, nullptr, kWithGroups);
  Held first(pool, 4, 2), second(pool, 4);
  tree.insert(count_from(0, 16), first.pages, {}, first.windows);
  EXPECT_EQ(tree.match(count_from(0, 8)).num_tokens, 0);
  const Tables own = second.windows;
  tree.insert(count_from(0, 16), second.pages, {}, second.windows);
  EXPECT_EQ(second.pages, first.pages);
  for (int group = 0; group < 2; ++group) {
    EXPECT_EQ(second.windows[group],
              (std::vector<PageId>{own[group][0], own[group][1], first.windows[group][2],
                                   first.windows[group][3]}));
  }
  EXPECT_EQ(tree.num_pages(), 3 * 4);
  EXPECT_EQ(tree.match(count_from(0, 8)).num_tokens, 8);
  first.release_all(pool);
  second.release_all(pool);
  EXPECT_EQ(pool.num_evictable(), 3 * 4);
  EXPECT_EQ(pool.num_available(), 64);
}

TEST(PrefixTreeWithGroups, WhatWasFilledBeforeItWasGivenBackStaysWithAPageThatIsRecordedAgain) {
  PagePool pool(64);
  PrefixTree tree(pool, kPage, nullptr, kWithGroups);
  Held held(pool, 4);
  tree.insert(count_from(0, 6), held.pages, {}, held.windows);  // the prompt
  held.release_windows(pool, 0, 2);                             // filled by then
  tree.insert(count_from(0, 15), held.pages, {}, held.windows);
  EXPECT_EQ(tree.num_pages(), 3 * 4);
  EXPECT_EQ(tree.match(count_from(0, 8)).num_tokens, 8);
}

TEST(PrefixTreeWithGroups, WindowPagesGoByTheirOwnUseAndTheOthersFromTheLeaves) {
  PagePool pool(18);
  PrefixTree tree(pool, kPage, nullptr, kWithGroups);
  Held held(pool, 6);
  tree.insert(count_from(0, 24), held.pages, {}, held.windows);
  held.release_windows(pool, 0, 4);
  EXPECT_EQ(pool.num_available(), 2 * 4);
  tree.evict_until_free(3);  // two nodes, since they come and go together
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(tree.match(count_from(0, 24)).num_tokens, 24);
  tree.evict_until_free(8);
  EXPECT_EQ(pool.num_free(), 8) << "pages of layers that see all are in use";
  EXPECT_EQ(tree.match(count_from(0, 24)).num_tokens, 24);
  EXPECT_EQ(tree.match(count_from(0, 16)).num_tokens, 0);
  held.release_all(pool);
  EXPECT_EQ(pool.num_available(), 18);
  tree.match(count_from(0, 24));
  tree.evict_until_free(11);
  EXPECT_EQ(pool.num_free(), 11) << "a leaf goes with its window pages";
  EXPECT_EQ(tree.num_pages(), 5 + 2);
  tree.evict_until_free(18);
  EXPECT_EQ(pool.num_free(), 18);
  EXPECT_EQ(tree.num_pages(), 0);
}

TEST(PrefixTreeWithGroups, ClearGivesEverythingBackThatIsNotInUse) {
  PagePool pool(24);
  PrefixTree tree(pool, kPage, nullptr, kWithGroups);
  Held held(pool, 3);
  tree.insert(count_from(0, 12), held.pages, {}, held.windows);
  tree.clear();
  EXPECT_EQ(tree.num_pages(), 0);
  EXPECT_EQ(tree.match(count_from(0, 12)).num_tokens, 0);
  EXPECT_EQ(pool.num_free(), 24 - 9);
  held.release_all(pool);
  EXPECT_EQ(pool.num_free(), 24);
}

}  // namespace
}  // namespace slime::engine
