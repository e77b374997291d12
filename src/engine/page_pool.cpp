#include "engine/page_pool.h"

#include "core/error.h"

namespace slime::engine {

PagePool::PagePool(int64_t num_pages)
    : holders_(num_pages, 0), in_tree_(num_pages, 0), begun_with_(num_pages, 0) {
  free_.reserve(num_pages);
  for (int64_t page = num_pages; page-- > 0;) free_.push_back(static_cast<PageId>(page));
}

std::optional<PageId> PagePool::allocate() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  holders_[page] = 1;
  begun_with_[page] = weights_;
  return page;
}

void PagePool::retain(PageId page) {
  check(holders_[page] > 0, "only a held page can get another holder");
  num_evictable_ -= is_evictable(page) ? 1 : 0;
  ++holders_[page];
}

void PagePool::release(PageId page) {
  check(holders_[page] > 0, "a page is released as often as it was retained");
  --holders_[page];
  num_evictable_ += is_evictable(page) ? 1 : 0;
  check(holders_[page] > 0 || !in_tree_[page], "the tree's reference is released by the tree");
  if (holders_[page] == 0) free_.push_back(page);
}

void PagePool::retain_for_tree(PageId page) {
  check(!in_tree_[page], "the prefix tree holds a page once");
  retain(page);
  in_tree_[page] = 1;
}

void PagePool::release_from_tree(PageId page) {
  check(in_tree_[page], "the prefix tree releases what it holds");
  num_evictable_ -= is_evictable(page) ? 1 : 0;
  in_tree_[page] = 0;
  release(page);
}

}  // namespace slime::engine
