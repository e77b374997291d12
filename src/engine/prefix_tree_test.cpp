#include "engine/prefix_tree.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

namespace slime::engine {
namespace {

constexpr int64_t kPage = 4;

std::vector<TokenId> count_from(TokenId first, int64_t count) {
  std::vector<TokenId> tokens(count);
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
  tree.insert(std::vector<TokenId>{0, 1, 9, 9}, sibling);
  tree.insert(std::vector<TokenId>{0, 1, 9, 7}, owner);  // the owner continued otherwise
  EXPECT_EQ(tree.match(std::vector<TokenId>{0, 1, 9, 9, 5}).pages, sibling);
  EXPECT_EQ(tree.match(std::vector<TokenId>{0, 1, 9, 7, 5}).pages, owner);
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
    tree.insert(count_from(static_cast<TokenId>(i), 1000 * kPage), pages);
  }
  for (int64_t i = 0; i < kUnused; ++i) {
    auto page = allocate(pool, 1);
    tree.insert(count_from(static_cast<TokenId>(10000000 + i), kPage), page);
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
  EXPECT_EQ(tree.match(count_from(0, 20)).num_tokens, 20) << "from 15, block 3";
  EXPECT_EQ(tree.match(count_from(0, 16)).num_tokens, 0) << "11 is gone";
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

}  // namespace
}  // namespace slime::engine
